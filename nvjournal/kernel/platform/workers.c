// SPDX-License-Identifier: GPL-2.0
/* The checkpoint threads of a journal, and parallel work during recovery. */
#include <linux/kthread.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "internal.h"

struct worker {
	struct nvj *journal;
	struct task_struct *task;
	unsigned int partition;
};

struct nvjk_workers {
	struct nvj *journal;
	unsigned int count;
	struct worker worker[];
};

static int work(void *argument)
{
	struct worker *worker = argument;

	/*
	 * Permanent: memory reclaim for this thread must not wait for the
	 * journal.
	 */
	(void)memalloc_nofs_save();
	nvj_checkpoint_worker(worker->journal, worker->partition);
	/* The task must exist until it is stopped. */
	for (;;) {
		set_current_state(TASK_IDLE);
		if (kthread_should_stop())
			break;
		schedule();
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

int nvjk_workers_start(struct nvjk_workers **result, struct nvj *journal, unsigned int partitions,
		       const char *name)
{
	struct nvjk_workers *workers =
		kzalloc(struct_size(workers, worker, partitions), GFP_KERNEL);

	*result = NULL;
	if (!workers)
		return -ENOMEM;
	workers->journal = journal;
	for (; workers->count < partitions; workers->count++) {
		struct worker *worker = &workers->worker[workers->count];
		struct task_struct *task;

		worker->journal = journal;
		worker->partition = workers->count;
		task = kthread_run(work, worker, "nvj/%s:%u", name, workers->count);
		if (IS_ERR(task)) {
			nvjk_workers_stop(workers);
			return PTR_ERR(task);
		}
		worker->task = task;
	}
	*result = workers;
	return 0;
}

void nvjk_workers_stop(struct nvjk_workers *workers)
{
	unsigned int i;

	if (!workers)
		return;
	nvj_stop_workers(workers->journal);
	for (i = 0; i < workers->count; i++)
		kthread_stop(workers->worker[i].task);
	kfree(workers);
}

/* --- Work in parallel ----------------------------------------------------- */

struct item {
	struct work_struct work;
	void (*function)(void *argument, unsigned int n);
	void *argument;
	unsigned int n;
};

static void run_item(struct work_struct *work)
{
	struct item *item = container_of(work, struct item, work);
	unsigned int nofs = memalloc_nofs_save();

	item->function(item->argument, item->n);
	memalloc_nofs_restore(nofs);
}

void nvjk_run(void *context, unsigned int count, void (*function)(void *argument, unsigned int n),
	      void *argument)
{
	struct item *items = kcalloc(count, sizeof(*items), GFP_NOFS);
	unsigned int i;

	if (!items) {
		for (i = 0; i < count; i++)
			function(argument, i);
		return;
	}
	for (i = 0; i < count; i++) {
		items[i] = (struct item){.function = function, .argument = argument, .n = i};
		INIT_WORK(&items[i].work, run_item);
		queue_work(system_unbound_wq, &items[i].work);
	}
	for (i = 0; i < count; i++)
		flush_work(&items[i].work);
	kfree(items);
}
