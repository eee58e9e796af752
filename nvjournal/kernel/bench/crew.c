/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads that start together and run until the time limit or the end of their
 * work.
 */
#include "load.h"

#include <stdlib.h>
#include <time.h>

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

struct worker *crew_run(struct crew *crew)
{
	struct worker *workers = calloc(crew->threads, sizeof(*workers));
	pthread_t *threads = calloc(crew->threads, sizeof(*threads));
	int error = pthread_barrier_init(&crew->barrier, NULL, crew->threads);

	if (!workers || !threads || error)
		fail(0, "no memory for %u threads", crew->threads);
	for (unsigned n = 0; n < crew->threads; n++) {
		struct worker *worker = &workers[n];

		worker->crew = crew;
		worker->number = n;
		worker->random = crew->seed * MAX_THREADS + n;
		worker->last = -1;
		worker->buffer = calloc(1, BUFFER_BYTES);
		worker->sync_us = calloc(MAX_SYNCS, sizeof(*worker->sync_us));
		if (!worker->buffer || !worker->sync_us)
			fail(0, "no memory for %u threads", crew->threads);
		error = pthread_create(&threads[n], NULL, work, worker);
		if (error)
			fail(error, "cannot start a thread");
	}
	for (unsigned n = 0; n < crew->threads; n++) {
		error = pthread_join(threads[n], NULL);
		if (error)
			fail(error, "cannot wait for a thread");
		if (workers[n].end_ns > crew->end_ns)
			crew->end_ns = workers[n].end_ns;
	}
	free(threads);
	return workers;
}
