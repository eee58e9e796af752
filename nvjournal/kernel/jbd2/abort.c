// SPDX-License-Identifier: GPL-2.0
/* Errors of the journal, and the features that ext4 checks. */
#include "journal.h"

/*
 * Called once, by the thread that met the error. The engine accepts no more
 * changes.
 */
void nvjk_aborted(void *context, int error, u64 block)
{
	struct nvjk_journal *j = context;

	write_lock(&j->journal.j_state_lock);
	j->journal.j_errno = error;
	j->journal.j_flags |= JBD2_ABORT;
	write_unlock(&j->journal.j_state_lock);
	/*
	 * ext4 has logged that it shuts down. Otherwise it logs the error at
	 * the next handle.
	 */
	if (error == -ESHUTDOWN)
		return;
	if (block != ~0ULL)
		pr_err("EXT4NVJ-fs (%s): the journal is aborted: %s, at block %llu (%d); what is "
		       "committed stays in its region\n",
		       j->name, nvj_strerror(error), block, error);
	else
		pr_err("EXT4NVJ-fs (%s): the journal is aborted: %s (%d); what is committed stays "
		       "in its region\n",
		       j->name, nvj_strerror(error), error);
}

/* Called by the thread that the kernel notifies. */
void nvjk_memory_failed(void *context, u64 offset)
{
	struct nvjk_journal *j = context;

	pr_err("EXT4NVJ-fs (%s): the memory of the journal fails, at byte %llu of its region on "
	       "%s\n",
	       j->name, offset, nvjk_region_device(j->region));
	nvj_abort(j->nvj, NVJ_EIO);
}

int nvjk_check_memory(struct nvjk_journal *j)
{
	u64 bad;

	if (likely(!nvjk_region_is_bad(j->region, &bad)))
		return 0;
	pr_err("EXT4NVJ-fs (%s): a bad block is known of the journal's memory, at byte %llu of its "
	       "region on %s: see /sys/block/*/badblocks\n",
	       j->name, bad, nvjk_region_device(j->region));
	return -EIO;
}

void jbd2_journal_abort(journal_t *journal, int error)
{
	nvj_abort(nvjk_of(journal)->nvj, error);
}

/*
 * jbd2 stores an error in its superblock for the next mount. At that time ext4
 * has already written the error to its own superblock, which is not journaled
 * after an abort.
 */
int jbd2_journal_errno(journal_t *journal)
{
	int error;

	/* So that the flag and the error are of the same moment. */
	read_lock(&journal->j_state_lock);
	error = is_journal_aborted(journal) ? journal->j_errno : 0;
	read_unlock(&journal->j_state_lock);
	return error;
}

int jbd2_journal_clear_err(journal_t *journal)
{
	return is_journal_aborted(journal) ? -EROFS : 0;
}

void jbd2_journal_update_sb_errno(journal_t *journal)
{
}

/*
 * The features that a block journal may lack are supported: revokes, 48-bit
 * block numbers, checksums. Features that make a block journal faster are not.
 */
int jbd2_journal_check_available_features(journal_t *journal, unsigned long compat,
					  unsigned long ro, unsigned long incompat)
{
	const unsigned long have = JBD2_FEATURE_INCOMPAT_REVOKE | JBD2_FEATURE_INCOMPAT_64BIT |
				   JBD2_FEATURE_INCOMPAT_CSUM_V2 | JBD2_FEATURE_INCOMPAT_CSUM_V3;

	return !(compat & ~JBD2_FEATURE_COMPAT_CHECKSUM) && !ro && !(incompat & ~have);
}

int jbd2_journal_set_features(journal_t *journal, unsigned long compat, unsigned long ro,
			      unsigned long incompat)
{
	return jbd2_journal_check_available_features(journal, compat, ro, incompat);
}

void jbd2_journal_clear_features(journal_t *journal, unsigned long compat, unsigned long ro,
				 unsigned long incompat)
{
}
