// SPDX-License-Identifier: GPL-2.0
/*
 * Commits. The thread that needs a commit does it itself, with the engine's
 * nvj_commit. The commit thread (thread.c) is for callers that do not wait, and
 * for the commit interval.
 */
#include <linux/sched/mm.h>

#include "journal.h"
#include "trace.h"

/* --- Callbacks ------------------------------------------------------------ */

static void call_back_one(struct nvjk_journal *j, u64 tid)
{
	struct nvjk_transaction *t = nvjk_transaction_find(j, tid);

	/* Its data were used for another transaction: ext4 would never free these blocks. */
	WARN_ON_ONCE(READ_ONCE(j->transactions[tid % NVJK_TRANSACTIONS].tid) > tid);
	if (!t || t->transaction.t_state == T_FINISHED)
		return;
	t->transaction.t_state = T_COMMIT;
	if (j->journal.j_commit_callback)
		j->journal.j_commit_callback(&j->journal, &t->transaction);
	t->transaction.t_state = T_FINISHED;
}

/* In the order of their numbers, also if several commit together. */
static void call_back_locked(struct nvjk_journal *j, u64 tid)
{
	while (j->called_back < tid) {
		call_back_one(j, j->called_back + 1);
		smp_store_release(&j->called_back, j->called_back + 1);
	}
}

static void call_back_to(struct nvjk_journal *j, u64 tid)
{
	/* Who reads the number without the mutex sees what was done before. */
	if (smp_load_acquire(&j->called_back) >= tid)
		return;
	mutex_lock(&j->callback_mutex);
	call_back_locked(j, tid);
	mutex_unlock(&j->callback_mutex);
}

void nvjk_call_back(struct nvjk_journal *j)
{
	unsigned int nofs = memalloc_nofs_save(); /* as in a commit */

	call_back_to(j, nvj_committed(j->nvj));
	memalloc_nofs_restore(nofs);
}

/*
 * All fsyncs of a commit return at the same time. The thread that did the commit makes
 * the callbacks; the others do not wait for it, as in jbd2. They make them if no thread
 * does so now: a worker may have done the commit, which makes none.
 */
static void call_back_after_commit(struct nvjk_journal *j)
{
	u64 tid = nvj_committed(j->nvj);

	if (READ_ONCE(j->led_by) == current) {
		call_back_to(j, tid);
	} else if (smp_load_acquire(&j->called_back) < tid && mutex_trylock(&j->callback_mutex)) {
		call_back_locked(j, tid);
		mutex_unlock(&j->callback_mutex);
	}
}

void nvjk_call_back_all(struct nvjk_journal *j)
{
	call_back_to(j, max(nvj_committed(j->nvj), READ_ONCE(j->newest)));
}

/* --- Commit ----------------------------------------------------------------- */

int nvjk_before_commit(void *context, u64 tid)
{
	struct nvjk_journal *j = context;
	unsigned int nofs = memalloc_nofs_save();
	int error;

	trace_jbd2nvj_start_commit(j->journal.j_fs_dev->bd_dev, tid);
	WRITE_ONCE(j->led_by, current);
	/* So that no slot is reused too early: see transaction.c. */
	if (tid > NVJK_LEFT)
		call_back_to(j, tid - NVJK_LEFT);
	error = nvjk_check_memory(j);
	if (!error)
		error = nvjk_ordered_before_commit(j, tid);
	trace_jbd2nvj_commit_logging(j->journal.j_fs_dev->bd_dev, tid);
	memalloc_nofs_restore(nofs);
	return error;
}

int nvjk_commit(struct nvjk_journal *j, u64 tid)
{
	/*
	 * Allocations of a commit must not wait for a handle, which may wait
	 * for the commit.
	 */
	unsigned int nofs = memalloc_nofs_save();
	int error;

	if (WARN_ON_ONCE(current->journal_info)) {
		memalloc_nofs_restore(nofs);
		nvjk_thread_commit(j, tid);
		return -EDEADLK;
	}
	trace_jbd2nvj_request_commit(j->journal.j_fs_dev->bd_dev, tid ? tid : READ_ONCE(j->newest));
	error = nvj_commit(j->nvj, tid);
	if (!error) {
		call_back_after_commit(j);
		trace_jbd2nvj_end_commit(j->journal.j_fs_dev->bd_dev, tid, nvj_committed(j->nvj));
		/*
		 * Nothing was logged, so nothing was committed and
		 * before_commit was not called. But the caller expects that a
		 * commit flushes the disk. Another thread may have begun this
		 * commit meanwhile: its flush counts only if it has ended.
		 */
		if (nvj_committed(j->nvj) < tid)
			error = nvjk_flush_data(j);
	}
	memalloc_nofs_restore(nofs);
	return error ? -EIO : 0;
}

/* For callers that need the blocks that were freed. */
static int commit_and_call_back(struct nvjk_journal *j, u64 tid)
{
	int error = nvjk_commit(j, tid);

	if (!error)
		nvjk_call_back(j);
	return error;
}

static bool committed(struct nvjk_journal *j, u64 tid)
{
	return nvj_committed(j->nvj) >= tid;
}

/* Returns 1 if there is something to commit, *tid, which will be committed. */
int jbd2_journal_start_commit(journal_t *journal, tid_t *tid)
{
	struct nvjk_journal *j = nvjk_of(journal);
	u64 newest = READ_ONCE(j->newest);

	if (committed(j, newest))
		return 0;
	if (tid)
		*tid = (tid_t)newest;
	nvjk_thread_commit(j, newest);
	return 1;
}

int jbd2_log_wait_commit(journal_t *journal, tid_t tid)
{
	struct nvjk_journal *j = nvjk_of(journal);
	u64 full = nvjk_tid(j, tid);

	if (!committed(j, full))
		return nvjk_commit(j, full);
	return is_journal_aborted(journal) ? -EIO : 0;
}

int jbd2_transaction_committed(journal_t *journal, tid_t tid)
{
	struct nvjk_journal *j = nvjk_of(journal);

	return committed(j, nvjk_tid(j, tid));
}

int jbd2_complete_transaction(journal_t *journal, tid_t tid)
{
	return jbd2_log_wait_commit(journal, tid);
}

/* As in jbd2, also what open handles have changed. */
int jbd2_journal_force_commit(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	int error = commit_and_call_back(j, READ_ONCE(j->newest));

	return !error && is_journal_aborted(journal) ? -EIO : error;
}

/*
 * Returns 1 if something was committed, so that the disk may have more free
 * space. A thread with an open handle must not wait for a commit, because it
 * may be that of its own transaction.
 */
int jbd2_journal_force_commit_nested(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	u64 newest = READ_ONCE(j->newest);

	if (committed(j, newest)) {
		/* Another thread frees blocks now. */
		if (current->journal_info || smp_load_acquire(&j->called_back) >= newest)
			return 0;
		nvjk_call_back(j);
		return 1;
	}
	if (current->journal_info) {
		nvjk_thread_commit(j, newest);
		return 0;
	}
	return commit_and_call_back(j, 0) == 0;
}

tid_t jbd2_get_latest_transaction(journal_t *journal)
{
	return (tid_t)READ_ONCE(nvjk_of(journal)->newest);
}

/*
 * True: what was written to the disk before is persistent when that transaction
 * is committed. So the transaction must not have started to write its data.
 */
int jbd2_trans_will_send_data_barrier(journal_t *journal, tid_t tid)
{
	struct nvjk_journal *j = nvjk_of(journal);
	u64 full = nvjk_tid(j, tid);
	bool will;

	if (!(READ_ONCE(journal->j_flags) & JBD2_BARRIER))
		return 0;
	spin_lock(&j->list_lock);
	will = full > j->data_tid;
	spin_unlock(&j->list_lock);
	return will;
}
