/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads, or processes, that start together and run until the time limit or the
 * end of their work.
 */
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* splitmix64: a counter and a mixing function, so each seed is good. */
static uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

uint32_t random_below(struct worker *worker, uint32_t bound)
{
	return (uint32_t)(((random_next(&worker->random) >> 32) * bound) >> 32);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	struct crew *crew = worker->crew;
	uint64_t limit;

	crew->load->begin(worker);
	/* When all are ready, one starts the clock, and all continue. */
	if (pthread_barrier_wait(&crew->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
		crew->begin_ns = now_ns();
	pthread_barrier_wait(&crew->barrier);
	limit = crew->limit_ns ? crew->begin_ns + crew->limit_ns : UINT64_MAX;
	while (now_ns() < limit && crew->load->next(worker))
		worker->operations++;
	if (crew->load->finish)
		crew->load->finish(worker);
	worker->end_ns = now_ns();
	return NULL;
}

void *shared_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void run_processes(struct crew *crew, struct worker *workers)
{
	int status;

	for (unsigned n = 0; n < crew->threads; n++) {
		pid_t child = fork();

		if (child < 0)
			fail(errno, "cannot start a process");
		if (!child) {
			work(&workers[n]);
			_exit(0);
		}
	}
	for (unsigned n = 0; n < crew->threads; n++)
		if (wait(&status) < 0 || status)
			fail(0, "a process of the load has failed");
}

static void run_threads(struct crew *crew, struct worker *workers)
{
	pthread_t *threads = calloc(crew->threads, sizeof(*threads));
	int error;

	if (!threads)
		fail(0, "no memory for %u threads", crew->threads);
	for (unsigned n = 0; n < crew->threads; n++) {
		error = pthread_create(&threads[n], NULL, work, &workers[n]);
		if (error)
			fail(error, "cannot start a thread");
	}
	for (unsigned n = 0; n < crew->threads; n++) {
		error = pthread_join(threads[n], NULL);
		if (error)
			fail(error, "cannot wait for a thread");
	}
	free(threads);
}

struct worker *crew_run(struct crew *crew)
{
	struct worker *workers = shared_memory(crew->threads * sizeof(*workers));
	pthread_barrierattr_t shared;
	int error = pthread_barrierattr_init(&shared);

	if (!error)
		error = pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	if (!error)
		error = pthread_barrier_init(&crew->barrier, &shared, crew->threads);
	if (!workers || error)
		fail(0, "no memory for %u threads", crew->threads);
	for (unsigned n = 0; n < crew->threads; n++) {
		struct worker *worker = &workers[n];

		worker->crew = crew;
		worker->number = n;
		worker->random = crew->seed * MAX_THREADS + n;
		worker->last = -1;
		worker->buffer = calloc(1, BUFFER_BYTES);
		worker->sync_us = shared_memory(MAX_SYNCS * sizeof(*worker->sync_us));
		if (!worker->buffer || !worker->sync_us)
			fail(0, "no memory for %u threads", crew->threads);
	}
	if (crew->processes)
		run_processes(crew, workers);
	else
		run_threads(crew, workers);
	for (unsigned n = 0; n < crew->threads; n++)
		if (workers[n].end_ns > crew->end_ns)
			crew->end_ns = workers[n].end_ns;
	return workers;
}
