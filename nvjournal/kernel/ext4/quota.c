// SPDX-License-Identifier: GPL-2.0
/*
 * Files of quotas that users can see (mount options usrquota and usrjquota=, and those for
 * groups; not the feature quota). While quotas are on, ext4 reads and writes the file as
 * metadata, past its pages. Before and after, it is a file like others, whose data
 * is written past the journal. At both changes everything is brought home: then the disk
 * has the content for the other side, and nothing is replayed over what that writes.
 */
#include <linux/quotaops.h>

#include "fs/ext4/ext4.h"
#include "fs/ext4/ext4_jbd2.h"

#ifdef CONFIG_QUOTA

int ext4nvj_quota_file_home(struct inode *inode)
{
	journal_t *journal = EXT4_JOURNAL(inode);
	int err = filemap_write_and_wait(inode->i_mapping);

	if (err || !journal)
		return err;
	/* So that no buffer of the file remains pinned. */
	jbd2_journal_lock_updates(journal);
	err = jbd2_journal_flush(journal, 0);
	jbd2_journal_unlock_updates(journal);
	return err;
}

/*
 * Called after dquot_quota_off, or dquot_quota_on that failed, has dropped the file's pages and
 * the disk's buffers before they were at home. What was read meanwhile is dropped again. If the
 * journal was aborted, the disk has nothing newer to read.
 */
int ext4nvj_quota_file_is_off(struct inode *inode)
{
	int err;

	if (!S_ISREG(inode->i_mode))
		return 0;
	/*
	 * A quotaon that failed may not have begun to use the file, which any program can still
	 * write to, also by its mapping.
	 */
	inode_lock(inode);
	filemap_invalidate_lock(inode->i_mapping);
	err = ext4nvj_quota_file_home(inode);
	if (!err)
		truncate_inode_pages(inode->i_mapping, 0);
	filemap_invalidate_unlock(inode->i_mapping);
	inode_unlock(inode);
	invalidate_bdev(inode->i_sb->s_bdev);
	return err;
}

/*
 * Replaces dquot_quota_off. Quotas are off also if this fails, because the journal was
 * aborted.
 */
int ext4nvj_quota_off(struct super_block *sb, int type)
{
	struct inode *inode = sb_dqopt(sb)->files[type];
	int err;

	if (ext4_has_feature_quota(sb) || !inode || !igrab(inode))
		return dquot_quota_off(sb, type);
	err = dquot_quota_off(sb, type);
	if (!err)
		err = ext4nvj_quota_file_is_off(inode);
	iput(inode);
	return err;
}

#endif
