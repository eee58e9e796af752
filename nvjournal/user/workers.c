/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for an open journal: checkpoint workers and commit workers, one of
 * each kind for each partition.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "nvjournal_user.h"

struct worker {
	struct nvju_workers *all;
	unsigned partition;
	void (*work)(struct nvj *journal, unsigned partition);
	pthread_t thread;
};

struct nvju_workers {
	struct nvj *journal;
	unsigned running;
	struct worker worker[2 * NVJ_MAX_PARTITIONS];
};

static void *work(void *argument)
{
	struct worker *worker = argument;

	worker->work(worker->all->journal, worker->partition);
	return NULL;
}

static int start(struct nvju_workers *workers, unsigned partitions,
		 void (*function)(struct nvj *, unsigned))
{
	unsigned n;
	int error;

	for (n = 0; n < partitions; n++) {
		struct worker *worker = &workers->worker[workers->running];

		*worker = (struct worker){.all = workers, .partition = n, .work = function};
		error = pthread_create(&worker->thread, NULL, work, worker);
		if (error)
			return nvju_fail(-error,
					 "cannot start worker %u of the journal: %s; fewer "
					 "partitions need fewer threads",
					 n, strerror(error));
		workers->running++;
	}
	return 0;
}

int nvju_workers_start(struct nvju_workers **result, struct nvj *journal, unsigned flags)
{
	struct nvju_workers *workers = calloc(1, sizeof(*workers));
	struct nvj_statistics statistics;
	int error = 0;

	*result = NULL;
	if (!workers)
		return nvju_fail(NVJ_ENOMEM, "cannot start the journal's workers: no memory");
	workers->journal = journal;
	nvj_statistics(journal, &statistics);
	if (flags & NVJU_CHECKPOINT_WORKERS)
		error = start(workers, statistics.partitions, nvj_checkpoint_worker);
	if (!error && flags & NVJU_COMMIT_WORKERS)
		error = start(workers, statistics.partitions, nvj_commit_worker);
	if (error) {
		nvju_workers_stop(workers);
		return error;
	}
	*result = workers;
	return 0;
}

void nvju_workers_stop(struct nvju_workers *workers)
{
	if (!workers)
		return;
	nvj_stop_workers(workers->journal);
	while (workers->running)
		pthread_join(workers->worker[--workers->running].thread, NULL);
	free(workers);
}
