// SPDX-License-Identifier: GPL-2.0
/*
 * Holds back all handles: for freezing, for a flush, and for changes by ext4
 * that exclude handles.
 *
 * A handle costs nothing for this but to read held_back twice, because the engine counts
 * handles anyway. A handle that starts is counted, and then reads held_back; the thread
 * that holds back all handles sets held_back, and then reads the counts. All four
 * accesses have one order. So either the thread sees the handle, or the handle sees that
 * it must wait. The same holds when a handle has ended and the thread may wait for it.
 */
#include <linux/sched/mm.h>

#include "journal.h"

void nvjk_updates_init(struct nvjk_journal *j)
{
	static struct lock_class_key key;

	mutex_init(&j->updates_mutex);
	init_waitqueue_head(&j->ended_wait);
	init_waitqueue_head(&j->updates_wait);
	lockdep_init_map(&j->updates_map, "jbd2nvj_updates", &key, 0);
}

void nvjk_updates_wait(struct nvjk_journal *j, struct nvjk_handle *h)
{
	(void)nvj_stop(&h->nvj);
	nvjk_updates_ended(j);
	wait_event(j->updates_wait, !READ_ONCE(j->held_back));
}

/*
 * No ordinary handle can start any more, so none is reserved after none is open. Open
 * handles may wait for reserved ones, which still start.
 */
static bool all_ended(struct nvjk_journal *j)
{
	return !nvj_handles_open(j->nvj) && !nvjk_any_reserved(j);
}

/*
 * Returns when no handle is open. No handle can start until the same thread
 * calls jbd2_journal_unlock_updates.
 */
void jbd2_journal_lock_updates(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	/* Memory reclaim on behalf of this thread must not need a handle. */
	unsigned int nofs = memalloc_nofs_save();

	mutex_lock(&j->updates_mutex);
	rwsem_acquire(&j->updates_map, 0, 0, _THIS_IP_);
	j->updates_nofs = nofs;
	nvj_store_sc(&j->held_back, 1);
	wait_event(j->ended_wait, all_ended(j));
}

void jbd2_journal_unlock_updates(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	unsigned int nofs = j->updates_nofs;

	nvj_store_sc(&j->held_back, 0);
	wake_up_all(&j->updates_wait);
	rwsem_release(&j->updates_map, _THIS_IP_);
	mutex_unlock(&j->updates_mutex);
	memalloc_nofs_restore(nofs);
}

/*
 * Commits everything up to now, and writes it home. Also what open handles have changed,
 * as in jbd2: pages of a file may be clean already, and are logged when the handle stops.
 */
int jbd2_journal_flush(journal_t *journal, unsigned int flags)
{
	struct nvjk_journal *j = nvjk_of(journal);
	unsigned int nofs;
	int error;

	/* This would erase the blocks of a journal on a disk. There is none. */
	if (flags)
		return -EOPNOTSUPP;
	error = nvjk_commit(j, READ_ONCE(j->newest));
	if (error)
		return error;
	nofs = memalloc_nofs_save();
	error = nvj_checkpoint(j->nvj);
	memalloc_nofs_restore(nofs);
	if (error)
		return -EIO;
	/* ext4 may discard blocks in them, which must not happen after a freeze. */
	nvjk_call_back(j);
	nvjk_pins_sweep(j, false);
	return 0;
}
