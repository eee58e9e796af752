// SPDX-License-Identifier: GPL-2.0
/*
 * The commit thread. It commits every j_commit_interval, and for callers that
 * do not wait. It releases buffers after a checkpoint, and asks for a
 * checkpoint if there are too many. No thread waits for it.
 */
#include <linux/freezer.h>
#include <linux/kthread.h>

#include "journal.h"
#include "trace.h"

static bool is_wanted(struct nvjk_journal *j)
{
	if (is_journal_aborted(&j->journal))
		return false;
	return READ_ONCE(j->wanted_tid) > nvj_committed(j->nvj) || READ_ONCE(j->wants_checkpoint) ||
	       (j->later_commits && nvj_much_waits(j->nvj));
}

static void sweep(struct nvjk_journal *j)
{
	u64 tail = nvj_tail(j->nvj);

	if (tail == j->swept_tail)
		return;
	trace_jbd2nvj_checkpoint(j->journal.j_fs_dev->bd_dev, tail);
	nvjk_pins_sweep(j, false);
	j->swept_tail = tail;
}

static void work(struct nvjk_journal *j)
{
	bool checkpoint = READ_ONCE(j->wants_checkpoint);
	u64 wanted = READ_ONCE(j->wanted_tid);

	if (is_journal_aborted(&j->journal))
		return;
	/* Errors abort the journal, which informs ext4. */
	if (checkpoint)
		(void)jbd2_journal_flush(&j->journal, 0);
	else
		(void)nvjk_commit(j, 0);
	/* Also for commits that workers did to make room. */
	nvjk_call_back(j);
	sweep(j);
	if (checkpoint)
		WRITE_ONCE(j->wants_checkpoint, false);
	/*
	 * It was not committed because nothing was logged in it. It is done,
	 * unless more was requested.
	 */
	if (wanted > nvj_committed(j->nvj))
		(void)cmpxchg64(&j->wanted_tid, wanted, 0);
}

static int run(void *argument)
{
	struct nvjk_journal *j = argument;

	set_freezable();
	while (!kthread_should_stop()) {
		unsigned long interval = READ_ONCE(j->journal.j_commit_interval);

		wait_event_freezable_timeout(j->thread_wait, is_wanted(j) || kthread_should_stop(),
					     interval ? interval : HZ);
		work(j);
	}
	return 0;
}

int nvjk_thread_start(struct nvjk_journal *j)
{
	struct task_struct *task;

	task = kthread_run(run, j, "nvj/%s-commit", j->name);
	if (IS_ERR(task))
		return PTR_ERR(task);
	j->journal.j_task = task;
	return 0;
}

void nvjk_thread_stop(struct nvjk_journal *j)
{
	struct task_struct *task = j->journal.j_task;

	j->journal.j_task = NULL;
	kthread_stop(task);
}

/* tid 0: all. */
void nvjk_thread_commit(struct nvjk_journal *j, u64 tid)
{
	u64 wanted = READ_ONCE(j->wanted_tid);

	if (!tid)
		tid = READ_ONCE(j->newest);
	while (wanted < tid && !try_cmpxchg64(&j->wanted_tid, &wanted, tid))
		;
	wake_up(&j->thread_wait);
}

/*
 * If the thread is committing, it checks itself afterwards: then less waits. A request for
 * the running transaction would make it commit once more at once.
 */
void nvjk_thread_check(struct nvjk_journal *j)
{
	if (unlikely(nvj_much_waits(j->nvj)) && wq_has_sleeper(&j->thread_wait))
		wake_up(&j->thread_wait);
}

void nvjk_thread_checkpoint(struct nvjk_journal *j)
{
	if (READ_ONCE(j->wants_checkpoint))
		return;
	WRITE_ONCE(j->wants_checkpoint, true);
	wake_up(&j->thread_wait);
}
