/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface between ext4 and the journal in persistent memory:
 *
 * 	edits		the changes in ext4's own files, and their reasons
 * 	rename.h	names of slab caches
 * 	marker.h	the mark of a disk whose journal is in a region
 * 	options.c	our mount options
 * 	check.c		which disks and options are refused
 * 	region.c	opens or refuses the region of a mount
 * 	load.c		mount: recovery, then an open journal
 * 	small.c		journal_data=small: whose data are journaled
 * 	wrote.c		reports writes of file data to the journal
 * 	statistics.c	/proc/fs/ext4nvj/DISK/nvjournal
 * 	fast_commit.c	empty functions, because there are no fast commits
 * 	module.c	init and exit
 *
 * ext4.h includes this file at its end.
 */
#ifndef EXT4NVJ_H
#define EXT4NVJ_H

#include <linux/fs_context.h>
#include <linux/proc_fs.h>

struct nvjk_region;

/*
 * Our mount options, as given; the first field of ext4's struct
 * ext4_fs_context.
 */
struct ext4nvj_options {
	char *journal_path;      /* of the pmem device; kmalloc'ed, or NULL */
	u64 journal_offset;      /* bytes, of the region in the device */
	u64 journal_size;        /* bytes; 0: as long as it was formatted */
	unsigned int partitions; /* 1..64; 0: as the region was formatted */
	bool whole_blocks;       /* records=blocks: each record has all lines, for comparison */
	bool one_lock;           /* lock=one: one lock for the journal, for comparison */
	bool journal_small;      /* journal_data=small: small files' data, too */
	bool allow_volatile;     /* memory that may lose what is committed will do */
	bool given_offset, given_size, given_partitions, given_records, given_lock, given_data;
};

/*
 * Our data of a mount, in ext4_sb_info.s_nvj. NULL: it has no journal (noload).
 */
struct ext4nvj {
	struct ext4nvj_options options; /* with the number of partitions that there are */
	struct nvjk_region *region;
	u8 uuid[16];    /* of the region's journal */
	u64 mark_block; /* of the disk: where each checkpoint writes the journal's tail */
};

/* options.c */
int ext4nvj_parse_param(struct fs_context *fc, struct fs_parameter *param);
void ext4nvj_free_context(struct fs_context *fc);
int ext4nvj_show_options(struct seq_file *seq, struct dentry *root);

/* check.c */
int ext4nvj_check_disk(struct super_block *sb, const struct ext4nvj_options *options);
struct inode *ext4nvj_inner_journal(struct super_block *sb);
int ext4nvj_inner_block(struct inode *inner, u64 *block);
int ext4nvj_check_remount(struct super_block *sb, struct fs_context *fc);

/* small.c */
#define EXT4NVJ_SMALL_BYTES (64u << 10)
/* With blocks of 4 KiB; other sizes cannot be mounted. */
#define EXT4NVJ_SMALL_BLOCKS (EXT4NVJ_SMALL_BYTES >> 12)
/* A state bit of an inode, after ext4's own: its data are journaled. */
#define EXT4NVJ_STATE_DATA 24
void ext4nvj_choose_data(struct inode *inode);
int ext4nvj_data_home(struct inode *inode);
int ext4nvj_data_past(struct inode *inode);
int ext4nvj_will_have(struct inode *inode, loff_t bytes);
int ext4nvj_will_allocate(struct inode *inode, int mode, loff_t offset, loff_t bytes);
int ext4nvj_allow_journal_data(struct inode *inode);

/* region.c */
struct nvj_report;
struct nvj_disk_super;
/* Logs each damaged place. */
void ext4nvj_say_findings(struct super_block *sb, const struct nvj_report *report);
/*
 * Opens nvj->region and reads its superblock. Returns 0, or the reason why it
 * cannot be used, which is logged.
 */
int ext4nvj_open_region(struct super_block *sb, struct ext4nvj *nvj, struct nvj_disk_super *super);
/*
 * Returns 0 if region and disk belong together. Otherwise NVJ_EMEDIUM,
 * NVJ_EUCLEAN..., which is logged.
 */
int ext4nvj_check_region(struct super_block *sb, const struct ext4nvj *nvj,
			 const struct nvj_disk_super *super);

/* load.c */
bool ext4nvj_wants_journal(struct super_block *sb);
int ext4nvj_load_journal(struct super_block *sb, struct ext4_super_block *es,
			 struct ext4nvj_options *options);
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
