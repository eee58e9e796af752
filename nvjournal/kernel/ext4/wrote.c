// SPDX-License-Identifier: GPL-2.0
/*
 * Reports writes of file data to the journal. A commit flushes the disk if
 * there were any.
 */
#include <linux/blkdev.h>

#include "fs/ext4/ext4.h"
#include "fs/ext4/ext4_jbd2.h"

void ext4nvj_wrote(struct super_block *sb)
{
	journal_t *journal = READ_ONCE(EXT4_SB(sb)->s_journal);

	if (journal)
		jbd2_journal_wrote(journal);
}

#undef sb_issue_zeroout

int ext4nvj_issue_zeroout(struct super_block *sb, sector_t block, sector_t blocks, gfp_t gfp)
{
	int error = sb_issue_zeroout(sb, block, blocks, gfp);

	ext4nvj_wrote(sb);
	return error;
}
