/* SPDX-License-Identifier: Apache-2.0 */
/* nvju_run: recovery with as many threads as there are processors. */
#include <pthread.h>
#include <unistd.h>

#include "nvjournal_user.h"

struct run {
	void (*work)(void *argument, unsigned n);
	void *argument;
	unsigned count;
	unsigned next; /* atomic: the next n that no thread has taken */
};

static void *run_some(void *argument)
{
	struct run *run = argument;
	unsigned n;

	while ((n = __atomic_fetch_add(&run->next, 1, __ATOMIC_RELAXED)) < run->count)
		run->work(run->argument, n);
	return NULL;
}

/* The caller works, too. If no thread can be created, it does everything. */
void nvju_run(void *context, unsigned count, void (*work)(void *argument, unsigned n),
	      void *argument)
{
	struct run run = {.work = work, .argument = argument, .count = count};
	pthread_t threads[NVJ_MAX_PARTITIONS];
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned wanted = count, made = 0;

	(void)context;
	if (processors > 0 && wanted > (unsigned long)processors)
		wanted = (unsigned)processors;
	if (wanted > NVJ_MAX_PARTITIONS)
		wanted = NVJ_MAX_PARTITIONS;
	while (made + 1 < wanted && !pthread_create(&threads[made], NULL, run_some, &run))
		made++;
	run_some(&run);
	while (made)
		pthread_join(threads[--made], NULL);
}
