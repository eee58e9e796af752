/* SPDX-License-Identifier: Apache-2.0 */
/* Time, threads that begin together, medians. */
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

struct one {
	pthread_t thread;
	struct group *group;
	unsigned number;
	uint64_t ended;
};

struct group {
	pthread_barrier_t start;
	int (*work)(void *argument, unsigned n);
	void *argument;
};

static void stay_on(unsigned processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	/* A processor that is not ours: the thread stays free. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static void *begin(void *argument)
{
	struct one *one = argument;

	stay_on(one->number % (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
	pthread_barrier_wait(&one->group->start);
	if (one->group->work(one->group->argument, one->number)) {
		fprintf(stderr, "bench: a measurement failed\n");
		exit(2);
	}
	one->ended = now_ns();
	return NULL;
}

double run_threads(unsigned count, int (*work)(void *argument, unsigned n), void *argument)
{
	struct group group = {.work = work, .argument = argument};
	struct one *all = must_allocate(count * sizeof(*all));
	uint64_t began, ended = 0;

	pthread_barrier_init(&group.start, NULL, count + 1);
	for (unsigned n = 0; n < count; n++) {
		all[n] = (struct one){.group = &group, .number = n};
		must(pthread_create(&all[n].thread, NULL, begin, &all[n]), "start a thread");
	}
	/* Taken before, not after: this thread may wake last. */
	began = now_ns();
	pthread_barrier_wait(&group.start);
	for (unsigned n = 0; n < count; n++) {
		pthread_join(all[n].thread, NULL);
		ended = all[n].ended > ended ? all[n].ended : ended;
	}
	pthread_barrier_destroy(&group.start);
	free(all);
	return (double)(ended - began) / 1e9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double percentile(double *values, size_t count, double part)
{
	qsort(values, count, sizeof(*values), by_value);
	return values[(size_t)(part * (double)(count - 1) + 0.5)];
}

struct spread spread_of(const double *values, unsigned count)
{
	double sorted[MAX_ROUNDS];
	struct spread s;

	for (unsigned n = 0; n < count; n++)
		sorted[n] = values[n];
	qsort(sorted, count, sizeof(*sorted), by_value);
	s.low = sorted[0];
	s.high = sorted[count - 1];
	s.median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
	return s;
}

unsigned short_rounds(const struct bench *b)
{
	return 6 * b->rounds < MAX_ROUNDS ? 6 * b->rounds : MAX_ROUNDS;
}

void *must_allocate(size_t bytes)
{
	void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096);

	if (!memory) {
		fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
		exit(2);
	}
	__builtin_memset(memory, 0, bytes);
	return memory;
}

void must(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "bench: cannot %s: %s\n", what,
			error < 0 ? nvj_strerror(error) : "the system refuses");
		exit(2);
	}
}
