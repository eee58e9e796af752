// SPDX-License-Identifier: GPL-2.0
/*
 * Holds back all handles: for freezing, for a flush, and for changes by ext4
 * that exclude handles.
 */
#include <linux/sched/mm.h>

#include "journal.h"

/*
 * Returns when no handle is open. No handle can start until the same thread
 * calls jbd2_journal_unlock_updates. Open handles may wait for reserved ones,
 * so those are awaited after them.
 */
void jbd2_journal_lock_updates(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	/* Memory reclaim on behalf of this thread must not need a handle. */
	unsigned int nofs = memalloc_nofs_save();

	percpu_down_write(&j->updates);
	j->updates_nofs = nofs;
	nvjk_reserved_wait(j);
}

void jbd2_journal_unlock_updates(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	unsigned int nofs = j->updates_nofs;

	percpu_up_write(&j->updates);
	memalloc_nofs_restore(nofs);
}

/* Commits everything up to now, and writes it home. */
int jbd2_journal_flush(journal_t *journal, unsigned int flags)
{
	struct nvjk_journal *j = nvjk_of(journal);
	unsigned int nofs;
	int error;

	/* This would erase the blocks of a journal on a disk. There is none. */
	if (flags)
		return -EOPNOTSUPP;
	error = nvjk_commit(j, 0);
	if (error)
		return error;
	nofs = memalloc_nofs_save();
	error = nvj_checkpoint(j->nvj);
	memalloc_nofs_restore(nofs);
	if (error)
		return -EIO;
	nvjk_pins_sweep(j, false);
	return 0;
}
