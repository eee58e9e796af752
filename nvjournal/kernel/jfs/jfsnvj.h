/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface between JFS and the journal in persistent memory:
 *
 * 	edits		the changes in JFS's own files, and their reasons
 * 	options.c	mount options
 * 	load.c		mount: checks and recovery; mark.c: the mark of the disk
 * 	log.c		JFS's log interface (lmLog, lmGroupCommit, ...)
 * 	transaction.c	the logging of a transaction; maps.c: what it changes in the maps
 * 	locks.c		whose lock a page has; free.c: locks and transactions that are free
 * 	known.c		what of a metapage need not be logged
 * 	rest.c		umount, freeze and thaw; read-only after an error
 * 	home.c		which metapages JFS may write home itself
 * 	resize.c	remount,resize=
 * 	thread.c	the commit thread
 * 	statistics.c	/proc/fs/jfsnvj/DISK/nvjournal
 * 	trace.h		tracepoints
 * 	module.c	what all mounts share
 *
 * What does not depend on JFS is in ../mount and ../platform. The rebuilding of
 * the working maps, which nvj uses, too, is in ../../jfs. jfs_logmgr.h includes
 * this file.
 */
#ifndef JFSNVJ_H
#define JFSNVJ_H

#include <linux/fs.h>
#include <linux/seq_file.h>

struct bio;
struct fs_parameter;
struct jfs_log;
struct jfs_sb_info;
struct jfsnvj;
struct jfsnvj_tx;
struct lrd;
struct metapage;
struct nvjk_mount_options;
struct tblock;
struct tlock;

/* options.c */
/*
 * One option: takes it if it is ours, and refuses those of JFS that the journal does
 * not support. Returns 0; -ENOPARAM: it is JFS's; another error, which is logged. sb
 * may be NULL.
 */
int jfsnvj_parse_option(const struct super_block *sb, struct nvjk_mount_options *options,
			struct fs_parameter *param);
/* A mount begins with these options, which it takes. Returns 0, or an error, which is logged. */
int jfsnvj_take_options(struct super_block *sb, struct nvjk_mount_options *given);
/*
 * A remount may only repeat our options, and after an error it must be read-only. Returns 0,
 * or an error, which is logged.
 */
int jfsnvj_check_remount(struct super_block *sb, const struct nvjk_mount_options *asked,
			 bool read_only);
/*
 * The same for all options in one text, out of which ours are taken. remount_flags: SB_RDONLY
 * or not; NULL for a mount.
 */
int jfsnvj_parse(struct super_block *sb, char *options, const int *remount_flags);
void jfsnvj_show_options(struct seq_file *seq, struct super_block *sb);

/* load.c */
/* Before JFS reads anything: checks the disk, opens the region, recovers. */
int jfsnvj_mount(struct super_block *sb);
/* Closes the region and frees all. */
void jfsnvj_free(struct super_block *sb);
/*
 * As JFS's diMount and dbMount, for a remount read-write, which has dropped the pages of the
 * map. After an error JFS goes on with what it has in memory: the file system stays read-only,
 * and its files are still looked up there.
 */
int jfsnvj_read_inode_map(struct super_block *sb);
int jfsnvj_read_block_map(struct super_block *sb);

/* mark.c */
/* Writes the superblocks with a new state, as JFS's updateSuper. */
int jfsnvj_update_super(struct super_block *sb, unsigned int state);

/* log.c */
int jfsnvj_sync(struct jfs_log *log, int wait);
/* Commits the inode, and all before it. 0 or -EIO. */
int jfsnvj_fsync(struct inode *inode);
/* The same, of an inode that looks clean: commits all that was logged. */
int jfsnvj_fsync_clean(struct inode *inode);

/* rest.c */
/*
 * Before an umount, or a remount read-only, removes the mark: if a write of JFS has failed
 * since all was at home, the journal is aborted, and the mark stays.
 */
void jfsnvj_check_rest(struct super_block *sb);
/*
 * After an error: the file system takes no more changes, as soon as it is not frozen. Any
 * thread.
 */
void jfsnvj_becomes_read_only(struct super_block *sb);
bool jfsnvj_is_aborted(struct super_block *sb);
/*
 * The file system is thawed, or a freeze has failed: marks the disk. If that fails, the
 * journal is aborted, so that writers fail rather than wait for ever.
 */
void jfsnvj_thaw(struct super_block *sb);
/*
 * Around the removal of a file without a name, to which the last reference is dropped. True:
 * it has waited for the thaw, and must end.
 */
bool jfsnvj_removal_begins(struct super_block *sb);
void jfsnvj_removal_ends(struct super_block *sb);
/*
 * Nobody uses the file system any more: as kill_block_super, when JFS's thread that commits
 * inodes while locks are few (jfs_sync) uses none of it either.
 */
void jfsnvj_kill_super(struct super_block *sb);
/* A lazy commit thread of JFS begins and ends to end a transaction. */
void jfsnvj_ends_lazily(struct jfs_sb_info *sbi, bool begins);

/* maps.c */
/*
 * A change of the persistent block map, or of that of inodes. It is applied and
 * logged when the transaction is committed.
 */
int jfsnvj_update_blocks(struct inode *ipbmap, int free, s64 blkno, s64 nblocks,
			 struct tblock *tblk);
int jfsnvj_update_inode(struct inode *ipimap, unsigned long inum, bool is_free,
			struct tblock *tblk);
/*
 * txUpdateMap runs twice. While the transaction is logged, the persistent maps
 * are changed. When it is committed, freed blocks may be used again, so they are
 * freed in the working maps. True: this is the first time.
 */
bool jfsnvj_is_logging(const struct tblock *tblk);
/* The part of txFreeMap's maptype that belongs to this time; 0: none. */
int jfsnvj_maptype(const struct tblock *tblk, int maptype);

/* transaction.c */
/*
 * Writes a new metapage by a journal record of its own, at that block of the
 * disk, and releases it. JFS writes such pages without its log.
 */
void jfsnvj_write_new(struct metapage *mp, s64 block);

/* locks.c */
/*
 * The tlock that is entered in a page or in a root in an inode, and in *owner its
 * transaction, 0 if it has none; returns 0 if there is no tlock. The caller holds the page,
 * so that no other thread can enter one.
 */
lid_t jfsnvj_lock_of(const lid_t *entry, tid_t *owner);
/*
 * Releases the page mp of ip, which the caller holds, and waits until the transaction owner,
 * whose tlock lid the page had, has released it. May return before.
 */
void jfsnvj_wait_for_page(struct inode *ip, struct metapage *mp, lid_t lid, tid_t owner);
/* The tlock, which no page has any more, belongs to no transaction. */
void jfsnvj_clear_tlock(lid_t lid);

/* free.c */
/* JFS's transactions and their locks of pages, which have numbers from 1 on. */
enum jfsnvj_kind { JFSNVJ_TBLOCKS, JFSNVJ_TLOCKS, JFSNVJ_KINDS };
/* all: how many there are, free or not. Before any of the functions below. */
void jfsnvj_keeps_free(enum jfsnvj_kind kind, unsigned int all);
/* Whether few are left in JFS's list. Who sets it has jfsTxnLock. */
void jfsnvj_set_few(enum jfsnvj_kind kind, bool are_few);
bool jfsnvj_are_few(enum jfsnvj_kind kind);
/* A free one that the processor keeps, or 0. */
u16 jfsnvj_take_kept(enum jfsnvj_kind kind);
/* The processor has none left, and keeps some of JFS's list. */
void jfsnvj_keep_more(enum jfsnvj_kind kind);
void jfsnvj_free_number(enum jfsnvj_kind kind, u16 number);

/* known.c */
/* A transaction locks a metapage, which none had locked, to change it. */
void jfsnvj_locks_page(struct metapage *mp);
/* A metapage is made anew: what the disk has is something else. */
void jfsnvj_makes_page(struct metapage *mp);
/* A metapage is released, which may have been changed. */
void jfsnvj_releases_page(struct metapage *mp);
/* A page of the inode map was read, and may now be changed. The caller has locked it. */
void jfsnvj_reads_iag(struct metapage *mp);
/* Frees what is known of a metapage. */
void jfsnvj_forget(struct metapage *mp);

/* resize.c */
/*
 * JFS is asked to extend the file system, whose log ends at block old_end, and will
 * have another place. 0, or -EOPNOTSUPP after a message.
 */
int jfsnvj_resize_check(struct super_block *sb, s64 old_end, s64 log_block, s64 log_blocks);
/* Waits for changes of the maps without a transaction, and holds up others until the end. */
void jfsnvj_resize_waits(struct super_block *sb);
/* No transaction is open. Before JFS changes a block that the file system has. */
int jfsnvj_resize_begins(struct super_block *sb);
/* After that. Gets and returns 0 or an error. */
int jfsnvj_resize_ends(struct super_block *sb, int error);
/*
 * Around an allocation of file data or of an inode, or the removal of a file without a
 * name. JFS makes them without a transaction, or by one that nothing holds up.
 */
void jfsnvj_allocation_begins(struct super_block *sb);
void jfsnvj_allocation_ends(struct super_block *sb);

/* home.c */
/*
 * A dirty metapage is to be written home. True: JFS must not write it. Then
 * *redirty says whether it stays dirty.
 */
bool jfsnvj_keeps(struct metapage *mp, int *redirty);
/* JFS itself writes metapages home, from that block on. */
void jfsnvj_writes_home(struct super_block *sb, s64 block, struct bio *bio);
/* Such a write has failed. Any context. */
void jfsnvj_write_failed(struct super_block *sb);
/* Says that memory must not drop the metapage, because it is not at home. */
bool jfsnvj_holds(const struct metapage *mp);

/*
 * For tracepoints (trace.h): a task changes an inode or its file; umount begins; a sync
 * begins and ends; a transaction waits for a page that the one of holder has locked, and
 * has waited.
 */
void jfsnvj_dirty_inode(struct inode *inode);
void jfsnvj_put_super(struct super_block *sb);
void jfsnvj_sync_begins(struct file *file, int datasync);
int jfsnvj_sync_ends(struct file *file, int error);
void jfsnvj_page_wait(struct super_block *sb, const struct inode *holder);
void jfsnvj_page_waited(struct super_block *sb);

/* module.c */
int jfsnvj_init(void);
void jfsnvj_exit(void);

/* Functions in JFS's own files that adapt makes public, or adds. */
void txUpdateMap(struct tblock *tblk);
void txRelease(struct tblock *tblk);
/* An inode that is evicted gives up the locks that it has without a transaction. */
void jfsnvj_drop_anonymous(struct inode *ip);
/* s_active is 0. Waits until jfs_sync uses no inode of the file system. */
void jfsnvj_wait_for_sync(struct super_block *sb);
/* JFS's list of free ones of a kind: takes up to most, unless few are left. */
unsigned int jfsnvj_take_from_list(enum jfsnvj_kind kind, u16 *numbers, unsigned int most);
void jfsnvj_return_to_list(enum jfsnvj_kind kind, const u16 *numbers, unsigned int count);

#endif
