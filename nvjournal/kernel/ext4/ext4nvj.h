/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface between ext4 and the journal in persistent memory:
 *
 * 	edits		the changes in ext4's own files, and their reasons
 * 	rename.h	names of slab caches
 * 	marker.h	the mark of a disk whose journal is in a region
 * 	options.c	mount options
 * 	check.c		which disks and options are refused
 * 	load.c		mount: recovery, then an open journal
 * 	small.c		journal_data=small: whose data are journaled
 * 	quota.c		files of quotas that users can see
 * 	wrote.c		reports writes of file data to the journal
 * 	statistics.c	/proc/fs/ext4nvj/DISK/nvjournal
 * 	fast_commit.c	empty functions, because there are no fast commits
 * 	module.c	init and exit
 *
 * What does not depend on ext4 is in ../mount. ext4.h includes this file at its
 * end. The first field of ext4's struct ext4_fs_context is a struct
 * nvjk_mount_options, and ext4_sb_info.s_nvj a struct nvjk_mount; NULL: the mount
 * has no journal (noload).
 */
#ifndef EXT4NVJ_H
#define EXT4NVJ_H

#include <linux/fs_context.h>
#include <linux/proc_fs.h>

#include "../mount/mount.h"

/* options.c */
int ext4nvj_parse_param(struct fs_context *fc, struct fs_parameter *param);
void ext4nvj_free_context(struct fs_context *fc);
int ext4nvj_show_options(struct seq_file *seq, struct dentry *root);

/* check.c */
int ext4nvj_check_disk(struct super_block *sb, const struct nvjk_mount_options *options);
struct inode *ext4nvj_inner_journal(struct super_block *sb);
int ext4nvj_inner_block(struct inode *inner, u64 *block);
int ext4nvj_check_remount(struct super_block *sb, struct fs_context *fc);

/* small.c */
#define EXT4NVJ_SMALL_BYTES (64u << 10)
/* With blocks of 4 KiB; other sizes cannot be mounted. */
#define EXT4NVJ_SMALL_BLOCKS (EXT4NVJ_SMALL_BYTES >> 12)
/* A state bit of an inode, after ext4's own: its data are journaled. */
#define EXT4NVJ_STATE_DATA 24
bool ext4nvj_journals_small(struct super_block *sb);
void ext4nvj_choose_data(struct inode *inode);
int ext4nvj_data_home(struct inode *inode);
int ext4nvj_data_past(struct inode *inode);
int ext4nvj_will_have(struct inode *inode, loff_t bytes);
int ext4nvj_will_not_journal(struct inode *inode);
int ext4nvj_will_allocate(struct inode *inode, int mode, loff_t offset, loff_t bytes);
int ext4nvj_allow_journal_data(struct inode *inode);

/* quota.c */
int ext4nvj_quota_file_home(struct inode *inode);
int ext4nvj_quota_file_is_off(struct inode *inode);
int ext4nvj_quota_off(struct super_block *sb, int type);

/* load.c */
bool ext4nvj_wants_journal(struct super_block *sb);
int ext4nvj_load_journal(struct super_block *sb, struct ext4_super_block *es,
			 struct nvjk_mount_options *options);
/* Called after orphans were deleted: the file system has an error if recovery brought one home. */
void ext4nvj_keep_error_state(struct super_block *sb);
int ext4nvj_destroy_journal(struct super_block *sb);

/*
 * Called when a write of file data to the disk has ended, successfully or not,
 * before its writer is informed. May be called from an interrupt.
 */
void ext4nvj_wrote(struct super_block *sb);
/* Replaces sb_issue_zeroout in all of ext4. */
int ext4nvj_issue_zeroout(struct super_block *sb, sector_t block, sector_t blocks, gfp_t gfp);
#define sb_issue_zeroout ext4nvj_issue_zeroout

/* statistics.c */
void ext4nvj_create_proc(struct super_block *sb, struct proc_dir_entry *directory);

/* Functions of ext4's own files that adapt makes public. */
void ext4_set_aops_as_chosen(struct inode *inode);
int __init ext4_init_fs(void);
void ext4_exit_fs(void);
int ext4_parse_param(struct fs_context *fc, struct fs_parameter *param);
void ext4_fc_free(struct fs_context *fc);
int ext4_show_options(struct seq_file *seq, struct dentry *root);
void ext4_init_journal_params(struct super_block *sb, struct journal_s *journal);
struct inode *ext4_get_journal_inode(struct super_block *sb, unsigned int inum);
int ext4_commit_super(struct super_block *sb);
int ext4_clear_journal_err(struct super_block *sb, struct ext4_super_block *es);

#endif
