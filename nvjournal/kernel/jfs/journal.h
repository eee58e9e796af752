/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations for the files here: a journal from mount to umount. */
#ifndef JFSNVJ_JOURNAL_H
#define JFSNVJ_JOURNAL_H

#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/version.h>
#include <linux/wait.h>

#include "../mount/mount.h"
#include "jfs_incore.h"
#include "jfs_filsys.h"
#include "jfs_metapage.h"
#include "jfs_superblock.h"
#include "jfs_txnmgr.h"

/* Two transactions change a persistent map in an order: of each block by one of these. */
#define JFSNVJ_MAP_LOCKS 64u

struct jfsnvj {
	struct super_block *sb;
	struct nvjk_mount *mount;
	struct nvjk_disk *disk;
	struct nvjk_workers *workers;
	struct nvjk_shrinker *shrinker;
	struct nvj *nvj; /* NULL: mounted read-only */
	/* For writing while nvj and JFS's pointer to log change, which is with s_umount. */
	struct rw_semaphore opened;
	struct jfs_log log;
	struct mutex *one_lock; /* NULL: there is none */
	struct mutex one_lock_mutex;
	struct nvjk_holds one_lock_holds;
	struct mutex map_lock[JFSNVJ_MAP_LOCKS];

	/*
	 * The file system is at rest, and all is at home: JFS writes what it
	 * wants.
	 */
	bool at_rest;
	atomic_t failed_writes; /* of JFS itself */
	int failed_before_rest;
	/* At rest, because JFS extends the file system: resize.c. */
	struct jfsnvj_before *before;
	struct mutex checkpoint_mutex;
	struct rw_semaphore allocations; /* held for writing while JFS extends it */
	unsigned int allocations_nofs;
	struct task_struct *extends; /* the thread that does so */
	bool aborted;
	bool ending;                     /* it is being unmounted after it was aborted */
	bool wants_read_only;            /* after an error: rest.c */
	struct task_struct *ends_lazily; /* JFS's thread that ends a transaction */
	struct proc_dir_entry *proc;

	/* The commit thread. */
	struct task_struct *task;
	wait_queue_head_t thread_wait;
	bool wants_commit, wants_checkpoint;
	unsigned int queued; /* transactions in the commit queue; under gclock */

	atomic64_t newest; /* the newest transaction that something was logged in */

	/* Of the disk: so many have begun; the newest of those that have succeeded. */
	atomic64_t flushes, flushed;
};

static inline struct jfsnvj *jfsnvj_of(struct super_block *sb)
{
	return JFS_SBI(sb)->nvj;
}

static inline struct inode *jfsnvj_host(const struct metapage *mp)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
	return mp->folio->mapping->host;
#else
	return mp->page->mapping->host;
#endif
}

static inline void jfsnvj_lock_one(struct jfsnvj *j)
{
	if (unlikely(j->one_lock)) {
		mutex_lock(j->one_lock);
		nvjk_hold_begins(&j->one_lock_holds);
	}
}

static inline void jfsnvj_unlock_one(struct jfsnvj *j)
{
	if (unlikely(j->one_lock)) {
		nvjk_hold_ends(&j->one_lock_holds);
		mutex_unlock(j->one_lock);
	}
}

/* load.c */
/* Formats the region, and opens its journal: a mount, or a remount, read-write. */
int jfsnvj_open(struct jfsnvj *j);
/* The opposite. Everything is at home, or the journal was aborted. */
int jfsnvj_close(struct jfsnvj *j);

/* log.c */
/* Commits, and lets the committed transactions end. tid 0: all. 0 or -EIO. */
int jfsnvj_commit(struct jfsnvj *j, u64 tid);
/* Commits all, and carries it home. */
int jfsnvj_checkpoint(struct jfsnvj *j);
/* Makes earlier writes to the disk persistent. */
int jfsnvj_flush_data(void *context, u64 tid);
/* The same, of a commit that starts: the engine's before_commit. */
int jfsnvj_before_commit(void *context, u64 tid);
/* Lets the committed transactions end. */
void jfsnvj_release_committed(struct jfsnvj *j);

/* rest.c */
/*
 * Writes the maps, with the counts that JFS has in memory only. It is at rest. An error,
 * too, if any write of JFS has failed since then.
 */
int jfsnvj_write_maps(struct jfsnvj *j);
/* All transactions have ended and are at home, and JFS may write what it wants: at_rest. */
void jfsnvj_come_to_rest(struct jfsnvj *j, bool unmounting);
/*
 * The caller has s_umount for writing, and no freeze lasts longer than that. The file
 * system is read-only from now on if an error has asked for it.
 */
void jfsnvj_is_read_only_now(struct jfsnvj *j);

/* maps.c */
/* The block of a page of a map; 0 after an error. */
u64 jfsnvj_map_block(struct inode *map, s64 page);

/* transaction.c */
/* Notes what a log record says of the transaction. */
void jfsnvj_note(struct tblock *tblk, const struct lrd *lrd, struct tlock *tlck);
/* Logs all that the transaction has changed, and releases its pages. */
void jfsnvj_log_transaction(struct jfsnvj *j, struct tblock *tblk);
/*
 * A transaction that was logged ends without waiting for its commit: nobody else waits for
 * that, and it has freed nothing that must not be used again before.
 */
bool jfsnvj_ends_at_once(const struct jfsnvj *j, const struct tblock *tblk);

/* known.c */
/*
 * What the disk has of a page that is about to be logged; NULL: that is not known. The
 * lines of changed differ from the page.
 */
const void *jfsnvj_before(struct metapage *mp, u64 changed);
/* The page was logged. */
void jfsnvj_logged(struct metapage *mp);
/*
 * Copies to mp->nvj_iag what a transaction has changed in a page of the inode map: the
 * persistent map, where these extents are, and where the page itself belongs. Returns
 * the lines that differ because of the last two. The caller logs nvj_iag, and holds
 * the page's map_lock.
 */
u64 jfsnvj_iag_lines(struct metapage *mp, const unsigned long *extents);

/* home.c */
bool jfsnvj_is_map(const struct metapage *mp);

/* thread.c */
int jfsnvj_thread_start(struct jfsnvj *j);
void jfsnvj_thread_stop(struct jfsnvj *j);
void jfsnvj_thread_commit(struct jfsnvj *j);
void jfsnvj_thread_checkpoint(struct jfsnvj *j);

/* mark.c */
/* Reads a superblock into a buffer of its own size. 0 or -EIO. */
int jfsnvj_read_super(struct super_block *sb, u64 block, void *image);
/* Removes the mark after recovery. */
int jfsnvj_unmark(struct super_block *sb);

/* statistics.c */
void jfsnvj_proc_create(struct jfsnvj *j);
void jfsnvj_proc_remove(struct jfsnvj *j);

#endif
