// SPDX-License-Identifier: GPL-2.0
/*
 * Fast commits let a block journal write less at fsync: they log the operations
 * instead of whole blocks. Here each commit logs only lines, so fast commits
 * are not needed. A disk with that feature is refused (check.c). These are the
 * functions that the rest of ext4 calls at each operation.
 */
#include <linux/seq_file.h>
#include <linux/version.h>

#include "fs/ext4/ext4.h"
#include "fs/ext4/ext4_jbd2.h"

/* As in ext4 without the feature. */
int ext4_fc_commit(journal_t *journal, tid_t commit_tid)
{
	return jbd2_complete_transaction(journal, commit_tid);
}

void ext4_fc_init(struct super_block *sb, journal_t *journal)
{
}

/* ext4 reads these fields of an inode, so they are initialized. */
void ext4_fc_init_inode(struct inode *inode)
{
	struct ext4_inode_info *ei = EXT4_I(inode);

	ext4_clear_inode_state(inode, EXT4_STATE_FC_COMMITTING);
	INIT_LIST_HEAD(&ei->i_fc_list);
	INIT_LIST_HEAD(&ei->i_fc_dilist);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
	init_waitqueue_head(&ei->i_fc_wait);
	atomic_set(&ei->i_fc_updates, 0);
#else
	ei->i_fc_snap = NULL;
#endif
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
void ext4_fc_start_update(struct inode *inode)
{
}

void ext4_fc_stop_update(struct inode *inode)
{
}
#endif

void ext4_fc_del(struct inode *inode)
{
}

void ext4_fc_mark_ineligible(struct super_block *sb, int reason, handle_t *handle)
{
}

void __ext4_fc_track_create(handle_t *handle, struct inode *inode, struct dentry *dentry)
{
}

void ext4_fc_track_create(handle_t *handle, struct dentry *dentry)
{
}

void __ext4_fc_track_link(handle_t *handle, struct inode *inode, struct dentry *dentry)
{
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
void ext4_fc_track_link(handle_t *handle, struct dentry *dentry)
{
}
#else
void ext4_fc_track_link(handle_t *handle, struct inode *inode, struct dentry *dentry)
{
}
#endif

void __ext4_fc_track_unlink(handle_t *handle, struct inode *inode, struct dentry *dentry)
{
}

void ext4_fc_track_unlink(handle_t *handle, struct dentry *dentry)
{
}

void ext4_fc_track_inode(handle_t *handle, struct inode *inode)
{
}

void ext4_fc_track_range(handle_t *handle, struct inode *inode, ext4_lblk_t start, ext4_lblk_t end)
{
}

bool ext4_fc_replay_check_excluded(struct super_block *sb, ext4_fsblk_t block)
{
	return false;
}

void ext4_fc_replay_cleanup(struct super_block *sb)
{
}

/* For a replay of fast commits, which never happens. */
int ext4_fc_record_regions(struct super_block *sb, int ino, ext4_lblk_t lblk, ext4_fsblk_t pblk,
			   int len, int replay)
{
	return -EOPNOTSUPP;
}

int ext4_fc_info_show(struct seq_file *seq, void *v)
{
	if (v == SEQ_START_TOKEN)
		seq_puts(seq, "ext4nvj has no fast commits\n");
	return 0;
}

int __init ext4_fc_init_dentry_cache(void)
{
	return 0;
}

void ext4_fc_destroy_dentry_cache(void)
{
}
