// SPDX-License-Identifier: GPL-2.0
/* Errors of the journal, and the features that ext4 asks for. */
#include "journal.h"

/* The engine takes no more changes. Called once, by whoever met the error. */
void nvjk_aborted(void *context, int error, u64 block)
{
	struct nvjk_journal *j = context;

	write_lock(&j->journal.j_state_lock);
	j->journal.j_errno = error;
	j->journal.j_flags |= JBD2_ABORT;
	write_unlock(&j->journal.j_state_lock);
	/* ext4 has said that it shuts down; else it says so at the next handle. */
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

/* By whoever the kernel tells of it. */
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
 * jbd2 keeps an error in its superblock, for the next mount. ext4 has written it
 * to its own by then, which is not journaled when the journal is aborted.
 */
int jbd2_journal_errno(journal_t *journal)
{
	return is_journal_aborted(journal) ? READ_ONCE(journal->j_errno) : 0;
}

int jbd2_journal_clear_err(journal_t *journal)
{
	return is_journal_aborted(journal) ? -EROFS : 0;
}

void jbd2_journal_update_sb_errno(journal_t *journal)
{
}

/*
 * What a block journal may lack is there: revokes, 48-bit block numbers, checksums.
 * What makes it faster is not.
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
