/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Threads that start together and run until the time limit or the end of their work.
 */
#include "load.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
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

void *load_memory(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		fail(0, "no memory for %zu times %zu bytes", count, size);
	return memory;
}

static void run_threads(struct crew *crew, struct worker *workers)
{
	pthread_t *threads = load_memory(crew->threads, sizeof(*threads));
	int error;

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
	struct worker *workers = load_memory(crew->threads, sizeof(*workers));
	int error = pthread_barrier_init(&crew->barrier, NULL, crew->threads);

	if (error)
		fail(error, "cannot start %u threads", crew->threads);
	for (unsigned n = 0; n < crew->threads; n++) {
		struct worker *worker = &workers[n];

		worker->crew = crew;
		worker->number = n;
		worker->random = random_seed(crew, n);
		worker->last = NO_FILE;
		worker->buffer = load_memory(1, BUFFER_BYTES);
		worker->sync_us = load_memory(MAX_SYNCS, sizeof(*worker->sync_us));
	}
	run_threads(crew, workers);
	for (unsigned n = 0; n < crew->threads; n++)
		if (workers[n].end_ns > crew->end_ns)
			crew->end_ns = workers[n].end_ns;
	return workers;
}
