// SPDX-License-Identifier: GPL-2.0
/*
 * The commit thread: it commits at an interval, and for callers that do not wait;
 * and it carries home what JFS would have written. No thread waits for it.
 */
#include <linux/freezer.h>
#include <linux/kthread.h>

#include "journal.h"

/* Seconds between commits. Blocks that are freed can be used again after a commit. */
#define INTERVAL 1

static bool is_wanted(struct jfsnvj *j)
{
	return READ_ONCE(j->wants_commit) || READ_ONCE(j->wants_checkpoint);
}

static void work(struct jfsnvj *j)
{
	bool checkpoint = READ_ONCE(j->wants_checkpoint);

	WRITE_ONCE(j->wants_commit, false);
	if (READ_ONCE(j->wants_read_only) && !sb_rdonly(j->sb))
		jfsnvj_becomes_read_only(j->sb);
	/* Errors abort the journal, which tells the file system. */
	if (READ_ONCE(j->aborted))
		jfsnvj_release_committed(j);
	else if (checkpoint)
		(void)jfsnvj_checkpoint(j);
	else if (atomic64_read(&j->newest) > (s64)nvj_committed(j->nvj))
		(void)jfsnvj_commit(j, 0);
	if (checkpoint)
		WRITE_ONCE(j->wants_checkpoint, false);
}

static int run(void *argument)
{
	struct jfsnvj *j = argument;

	set_freezable();
	while (!kthread_should_stop()) {
		wait_event_freezable_timeout(j->thread_wait, is_wanted(j) || kthread_should_stop(),
					     INTERVAL * HZ);
		work(j);
	}
	return 0;
}

int jfsnvj_thread_start(struct jfsnvj *j)
{
	struct task_struct *task;

	init_waitqueue_head(&j->thread_wait);
	task = kthread_run(run, j, "nvj/%s-commit", j->sb->s_id);
	if (IS_ERR(task))
		return PTR_ERR(task);
	j->task = task;
	return 0;
}

void jfsnvj_thread_stop(struct jfsnvj *j)
{
	kthread_stop(j->task);
}

void jfsnvj_thread_commit(struct jfsnvj *j)
{
	WRITE_ONCE(j->wants_commit, true);
	wake_up(&j->thread_wait);
}

void jfsnvj_thread_checkpoint(struct jfsnvj *j)
{
	if (READ_ONCE(j->wants_checkpoint))
		return;
	WRITE_ONCE(j->wants_checkpoint, true);
	wake_up(&j->thread_wait);
}
