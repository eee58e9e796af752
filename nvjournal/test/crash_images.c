/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash images: every workload of test/lib/workloads.c, and for every point
 * between two events of its trace, images that a crash could leave there.
 *
 *	crash_images [-n IMAGES] [-i IMAGES_PER_POINT] [-s SEED] [-w WORKLOAD] [-j PROCESSES] [-x]
 *[-1]
 *
 * Runs until IMAGES have been recovered, each workload with each seed in turn.
 * -x stops at the first violation; -1 runs one seed only. Prints what it did, and
 * fails if there was a violation or fewer images than wanted.
 */
#include "lib/checker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_PROCESSES 16u
#define MOST_WORKLOADS 64u
/* Of the processor, not of the clock: a run takes less than a second, on whatever machine. */
#define LONGEST_RUN_SECONDS 60

/* Shared by the processes. */
struct board {
	uint64_t next; /* seed and workload to take */
	uint64_t images, runs;
	uint32_t stop;
	uint32_t ran[MOST_WORKLOADS];
	struct checker_counts counts[MOST_PROCESSES];
	char doing[MOST_PROCESSES][128];
};

struct arguments {
	uint64_t images, runs, seed, seeds;
	uint32_t processes;
	const char *workload;
	struct checker_options options;
};

static char *doing;

/* A core that spins without a point is found by the time it takes. */
static void too_long(int signal)
{
	static const char text[] = "\nVIOLATION: a run does not end: ";

	(void)signal;
	if (write(1, text, sizeof(text) - 1) < 0 || write(1, doing, strlen(doing)) < 0 ||
	    write(1, "\n", 1) < 0)
		_exit(4);
	_exit(3);
}

static void work(struct board *board, const struct arguments *a, unsigned n)
{
	const struct itimerval longest = {.it_value.tv_sec = LONGEST_RUN_SECONDS};
	struct checker_counts *counts = &board->counts[n];

	doing = board->doing[n];
	signal(SIGPROF, too_long);
	while (!__atomic_load_n(&board->stop, __ATOMIC_RELAXED) && counts->violations < 100 &&
	       (__atomic_load_n(&board->images, __ATOMIC_RELAXED) < a->images ||
		__atomic_load_n(&board->runs, __ATOMIC_RELAXED) < a->runs)) {
		uint64_t turn = __atomic_fetch_add(&board->next, 1, __ATOMIC_RELAXED);
		uint64_t seed = a->seed + turn / workload_count, before = counts->images;
		const struct workload *w = &workloads[turn % workload_count];

		if (a->seeds != 0 && seed >= a->seed + a->seeds)
			break;
		if (a->workload != NULL && strcmp(a->workload, w->name) != 0)
			continue;
		snprintf(doing, sizeof(board->doing[n]), "workload \"%s\", seed %llu", w->name,
			 (unsigned long long)seed);
		setitimer(ITIMER_PROF, &longest, NULL);
		checker_run(w, seed, &a->options, counts);
		__atomic_fetch_add(&board->images, counts->images - before, __ATOMIC_RELAXED);
		__atomic_fetch_add(&board->runs, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&board->ran[turn % workload_count], 1, __ATOMIC_RELAXED);
		if (counts->violations != 0 && a->options.stop_at_violation)
			__atomic_store_n(&board->stop, 1, __ATOMIC_RELAXED);
	}
}

static void sum(const struct board *board, unsigned processes, struct checker_counts *all)
{
	for (unsigned i = 0; i < processes; i++) {
		const uint64_t *from = (const uint64_t *)(const void *)&board->counts[i];
		uint64_t *to = (uint64_t *)(void *)all;

		for (size_t k = 0; k < sizeof(*all) / sizeof(uint64_t); k++)
			to[k] += from[k];
	}
}

static struct arguments parse(int argc, char **argv)
{
	/* Each workload eight times at least. */
	struct arguments a = {
		.images = 1000000, .runs = 8 * workload_count, .seed = 1, .processes = 2};
	const char *variant = getenv("NVJ_VARIANT");
	int option;

	a.options.images_per_point = 4;
	/* "make test" runs it in several variants; one of them at length. */
	if (variant != NULL && strcmp(variant, "gcc") != 0) {
		a.images = 100000;
		a.runs = 2 * workload_count;
		a.options.one_point_in = 4;
	}
	while ((option = getopt(argc, argv, "n:i:r:e:s:w:j:x1")) != -1) {
		switch (option) {
		case 'n':
			a.images = strtoull(optarg, NULL, 0);
			break;
		case 'i':
			a.options.images_per_point = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'r':
			a.runs = strtoull(optarg, NULL, 0);
			break;
		case 'e':
			a.options.one_point_in = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 's':
			a.seed = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			a.workload = optarg;
			break;
		case 'j':
			a.processes = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'x':
			a.options.stop_at_violation = true;
			break;
		case '1':
			a.seeds = 1;
			break;
		default:
			exit(2);
		}
	}
	if (a.processes == 0 || a.processes > MOST_PROCESSES)
		exit(2);
	return a;
}

int main(int argc, char **argv)
{
	struct arguments a = parse(argc, argv);
	struct checker_counts all = {0};
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct timespec begin, end;
	unsigned distinct = 0;
	int status, failed = 0;

	if (board == MAP_FAILED)
		return 2;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned i = 0; i < a.processes; i++) {
		pid_t child = fork();

		if (child == 0) {
			work(board, &a, i);
			fflush(stdout);
			_exit(0);
		}
	}
	while (wait(&status) > 0) {
		if (status != 0) {
			failed = 1;
			printf("a process ended with status %#x\n", status);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	sum(board, a.processes, &all);
	for (unsigned i = 0; i < workload_count; i++)
		distinct += board->ran[i] != 0;
	for (unsigned i = 0; i < a.processes && failed; i++)
		printf("process %u was at: %s\n", i, board->doing[i]);
	printf("crash_images: %llu images at %llu points (%llu of them wholly enumerated), "
	       "%u workloads, %llu runs, %llu generations, %llu violations; %.0f s\n",
	       (unsigned long long)all.images, (unsigned long long)all.points,
	       (unsigned long long)all.whole_points, distinct, (unsigned long long)all.runs,
	       (unsigned long long)all.generations, (unsigned long long)all.violations,
	       (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
	printf("  of a crash during recovery %llu, during a format %llu, of a plain file %llu; "
	       "%llu generations recovered in threads\n",
	       (unsigned long long)all.in_recovery, (unsigned long long)all.in_format,
	       (unsigned long long)all.by_pages, (unsigned long long)all.in_threads);
	printf("  recovered twice %llu; generations after a kill "
	       "%llu; the workloads had %llu "
	       "merged transactions, %llu laps, %llu waits for room, %llu frozen images, %llu "
	       "checkpoints, %llu revokes\n",
	       (unsigned long long)all.recovered_twice, (unsigned long long)all.kills,
	       (unsigned long long)all.merged, (unsigned long long)all.wraps,
	       (unsigned long long)all.start_waits, (unsigned long long)all.frozen,
	       (unsigned long long)all.checkpoints, (unsigned long long)all.revokes);
	if (all.images < a.images && a.seeds == 0 && !a.options.stop_at_violation)
		failed = 1;
	return failed != 0 || all.violations != 0;
}
