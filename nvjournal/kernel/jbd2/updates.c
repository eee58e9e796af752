// SPDX-License-Identifier: GPL-2.0
/* All handles held back: for freezing, for a flush, for what ext4 changes at once. */
#include <linux/sched/mm.h>

#include "journal.h"

/*
 * Returns when no handle is open, and none can be begun before
 * jbd2_journal_unlock_updates, by the same thread. Open handles may wait for
 * reserved ones, which therefore come after them.
 */
void jbd2_journal_lock_updates(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	/* Memory that is freed for us must not want a handle. */
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

/* All that is done by now is committed and at home. */
int jbd2_journal_flush(journal_t *journal, unsigned int flags)
{
	struct nvjk_journal *j = nvjk_of(journal);
	unsigned int nofs;
	int error;

	/* To erase the blocks of a journal on a disk: here is none. */
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
