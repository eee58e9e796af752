// SPDX-License-Identifier: GPL-2.0
/*
 * JFS's log interface, in place of its jfs_logmgr.c. There are no log pages and no
 * synchronization points: the region has the log, and the engine moves its tail.
 *
 * A transaction is logged as a whole when JFS writes its commit record, and its pages
 * may change again. If it has freed nothing and nobody waits for its commit, it ends
 * then: the engine knows what it has to commit and to write home.
 *
 * Others are in the commit queue until the engine has committed them. A synchronous
 * transaction is committed by its own thread; the others by the commit thread, or by the
 * next synchronous one. Then the transaction ends: freed blocks may be used again. A
 * synchronous transaction that frees no page is ended by its own thread, so that an fsync
 * does not wait for a thread to be scheduled; the others by JFS's lazy commit threads, in
 * the order of the queue.
 */
#include <linux/blkdev.h>
#include <linux/sched/mm.h>

#include "journal.h"
#include "jfs_inode.h"
#include "trace.h"

/* So many transactions in the queue wake the commit thread. */
#define MOST_QUEUED 512u

static struct jfsnvj *of(struct jfs_log *log)
{
	return log->nvj;
}

/*
 * Its own thread ends the transaction. JFS gives one that deletes an inode to a lazy
 * commit thread, because the last reference to the inode is dropped there. One that frees
 * a page ends there, too: an earlier one, which is lazy, may still hold the page.
 */
static bool ends_itself(const struct tblock *tblk)
{
	const struct tlock *tlck;
	lid_t lid;

	if (tblk->xflag & COMMIT_FORCE)
		return true;
	if (tblk->xflag & (COMMIT_LAZY | COMMIT_DELETE))
		return false;
	for (lid = tblk->next; lid; lid = tlck->next) {
		tlck = lid_to_tlock(lid);
		if (tlck->flag & tlckFREEPAGE)
			return false;
	}
	return true;
}

int lmLog(struct jfs_log *log, struct tblock *tblk, struct lrd *lrd, struct tlock *tlck)
{
	struct jfsnvj *j = of(log);

	if (!tblk)
		return 0;
	if (lrd->type != cpu_to_le16(LOG_COMMIT)) {
		jfsnvj_note(tblk, lrd, tlck);
		return 0;
	}
	jfsnvj_log_transaction(j, tblk);
	if (jfsnvj_ends_at_once(j, tblk)) {
		tblk->flag = tblkGC_COMMITTED; /* nobody waits for it */
		return 0;
	}
	tblk->nvj_ends_itself = ends_itself(tblk);
	spin_lock_irq(&log->gclock);
	tblk->flag = tblkGC_QUEUE;
	list_add_tail(&tblk->cqueue, &log->cqueue);
	j->queued++;
	spin_unlock_irq(&log->gclock);
	return 0;
}

/* The caller holds gclock. */
static void release(struct jfs_log *log, struct tblock *tblk, bool error)
{
	list_del(&tblk->cqueue);
	tblk->flag &= ~tblkGC_QUEUE;
	if (error)
		tblk->flag |= tblkGC_ERROR;
	of(log)->queued--;
	if (!tblk->nvj_ends_itself) {
		txLazyUnlock(tblk);
		return;
	}
	tblk->flag |= tblkGC_COMMITTED;
	if (tblk->flag & tblkGC_READY)
		log->gcrtc--;
	wake_up_all(&tblk->gcwait);
}

void jfsnvj_release_committed(struct jfsnvj *j)
{
	struct tblock *tblk, *next;
	u64 committed;
	bool error;

	spin_lock_irq(&j->log.gclock);
	/* After an abort a transaction has the number 0: it ends after those before it. */
	error = READ_ONCE(j->aborted);
	committed = nvj_committed(j->nvj);
	/* The queue may not be in the order of the transactions' numbers. */
	list_for_each_entry_safe(tblk, next, &j->log.cqueue, cqueue)
	{
		if (tblk->nvj_tid <= committed)
			release(&j->log, tblk, false);
		else if (error)
			release(&j->log, tblk, true);
	}
	spin_unlock_irq(&j->log.gclock);
}

/*
 * File data, extended attributes and long symbolic links were written to the disk
 * by then. They must stay there before a transaction is committed that refers to
 * them. Not inline, so that tests can replace it for all its callers.
 */
noinline int jfsnvj_flush_data(void *context, u64 tid)
{
	struct jfsnvj *j = context;
	s64 number = atomic64_inc_return(&j->flushes);
	s64 newest = atomic64_read(&j->flushed);

	if (blkdev_issue_flush(j->sb->s_bdev))
		return -EIO;
	while (newest < number && !atomic64_try_cmpxchg(&j->flushed, &newest, number))
		;
	return 0;
}

/* What is committed to memory that cannot be read is lost. */
static int check_memory(const struct jfsnvj *j)
{
	u64 bad;

	if (likely(!nvjk_region_is_bad(j->mount->region, &bad)))
		return 0;
	nvjk_say(j->sb, KERN_ERR,
		 "a bad block is known of the journal's memory, at byte %llu of its region on %s: "
		 "see /sys/block/*/badblocks",
		 bad, nvjk_region_device(j->mount->region));
	return -EIO;
}

int jfsnvj_before_commit(void *context, u64 tid)
{
	struct jfsnvj *j = context;
	int error;

	trace_jfsnvj_start_commit(j->sb->s_dev, tid);
	error = check_memory(j) ?: jfsnvj_flush_data(j, tid);
	trace_jfsnvj_commit_logging(j->sb->s_dev, tid);
	return error;
}

int jfsnvj_commit(struct jfsnvj *j, u64 tid)
{
	unsigned int nofs = memalloc_nofs_save();
	int error;

	trace_jfsnvj_request_commit(j->sb->s_dev, tid ?: atomic64_read(&j->newest));
	error = nvj_commit(j->nvj, tid);
	jfsnvj_release_committed(j);
	if (!error)
		trace_jfsnvj_end_commit(j->sb->s_dev, tid, nvj_committed(j->nvj));
	memalloc_nofs_restore(nofs);
	return error ? -EIO : 0;
}

int jfsnvj_checkpoint(struct jfsnvj *j)
{
	unsigned int nofs = memalloc_nofs_save();
	int error = 0;

	mutex_lock(&j->checkpoint_mutex);
	/* While JFS extends the file system, the journal has what the disk had before. */
	if (!READ_ONCE(j->before)) {
		error = jfsnvj_commit(j, 0);
		if (!error && nvj_checkpoint(j->nvj))
			error = -EIO;
		if (!error)
			trace_jfsnvj_checkpoint(j->sb->s_dev, nvj_tail(j->nvj));
	}
	mutex_unlock(&j->checkpoint_mutex);
	memalloc_nofs_restore(nofs);
	return error;
}

int lmGroupCommit(struct jfs_log *log, struct tblock *tblk)
{
	struct jfsnvj *j = of(log);
	int error;

	/* It ends at once: one in the queue does not become committed while it is lazy. */
	if (tblk->xflag & COMMIT_LAZY && READ_ONCE(tblk->flag) & tblkGC_COMMITTED)
		return READ_ONCE(j->aborted) ? -EIO : 0;
	spin_lock_irq(&log->gclock);
	if (tblk->xflag & COMMIT_LAZY) {
		tblk->flag |= tblkGC_LAZY;
		if (j->queued > MOST_QUEUED || jfs_tlocks_low || READ_ONCE(j->aborted))
			jfsnvj_thread_commit(j);
		error = tblk->flag & tblkGC_ERROR || READ_ONCE(j->aborted) ? -EIO : 0;
		spin_unlock_irq(&log->gclock);
		return error;
	}
	if (!(tblk->flag & tblkGC_COMMITTED)) {
		log->gcrtc++;
		tblk->flag |= tblkGC_READY;
	}
	spin_unlock_irq(&log->gclock);

	error = jfsnvj_commit(j, tblk->nvj_tid);
	wait_event(tblk->gcwait, READ_ONCE(tblk->flag) & tblkGC_COMMITTED);
	/* Who woke this thread is done with the transaction when it gives up the lock. */
	spin_lock_irq(&log->gclock);
	if (tblk->flag & tblkGC_ERROR)
		error = -EIO;
	spin_unlock_irq(&log->gclock);
	/* txCommit does it for COMMIT_FORCE. */
	if (tblk->nvj_ends_itself && !(tblk->xflag & COMMIT_FORCE))
		txUpdateMap(tblk);
	return error;
}

/* When a sync began. */
struct since {
	u64 running; /* the transaction */
	s64 flushes; /* so many had begun */
};

static struct since now(struct jfsnvj *j)
{
	return (struct since){nvj_running(j->nvj), atomic64_read(&j->flushes)};
}

/*
 * Commits all that was logged before, and flushes the disk: who syncs expects that
 * his data stays on the disk. A commit of the transaction that was running then has
 * flushed it. If nothing was logged since, no commit does. Another thread may have
 * flushed it meanwhile. That counts if it began since then, and has ended.
 */
static int commit_since(struct jfsnvj *j, struct since then)
{
	int error;

	if (nvj_committed(j->nvj) >= then.running)
		return READ_ONCE(j->aborted) ? -EIO : 0;
	error = jfsnvj_commit(j, 0);
	if (!error && atomic64_read(&j->flushed) <= then.flushes)
		error = jfsnvj_flush_data(j, 0);
	return error;
}

int jfsnvj_sync(struct jfs_log *log, int wait)
{
	struct jfsnvj *j;

	if (!log)
		return 0;
	j = of(log);
	if (wait)
		return commit_since(j, now(j));
	jfsnvj_thread_commit(j);
	return 0;
}

/* As jfs_commit_inode, and says whether this call has committed it. */
static int commit_inode(struct inode *inode, bool *committed)
{
	int error = 0;
	tid_t tid;

	*committed = false;
	if (!inode->i_nlink || !test_cflag(COMMIT_Dirty, inode) || isReadOnly(inode))
		return 0;
	tid = txBegin(inode->i_sb, COMMIT_INODE);
	mutex_lock(&JFS_IP(inode)->commit_mutex);
	if (inode->i_nlink && test_cflag(COMMIT_Dirty, inode)) {
		error = txCommit(tid, 1, &inode, COMMIT_SYNC);
		*committed = true;
	}
	txEnd(tid);
	mutex_unlock(&JFS_IP(inode)->commit_mutex);
	return error;
}

/*
 * JFS forgets that an inode is dirty when it is committed lazily. So this commits
 * all, also if the inode looks clean. It does so, too, from the moment when another
 * thread begins to commit it; that thread has logged it when it gives up the mutex.
 */
static int sync_inode(struct jfsnvj *j, struct inode *inode)
{
	struct since then;
	bool committed;
	int error;

	trace_jfsnvj_sync_file_written(inode);
	then = now(j);
	error = commit_inode(inode, &committed);
	if (!error && !committed) {
		mutex_lock(&JFS_IP(inode)->commit_mutex);
		mutex_unlock(&JFS_IP(inode)->commit_mutex);
		then.running = nvj_running(j->nvj);
	}
	return error ?: commit_since(j, then);
}

/* A remount read-only closes the journal, also while a file that cannot be written is synced. */
int jfsnvj_fsync(struct inode *inode)
{
	struct jfsnvj *j = jfsnvj_of(inode->i_sb);
	int error;

	down_read(&j->opened);
	if (j->nvj)
		error = sync_inode(j, inode);
	else
		error = READ_ONCE(j->aborted) ? -EIO : 0;
	up_read(&j->opened);
	return error;
}

static bool is_written_back(struct inode *inode)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
	return inode_state_read_once(inode) & I_SYNC;
#else
	return READ_ONCE(inode->i_state) & I_SYNC;
#endif
}

int jfsnvj_fsync_clean(struct inode *inode)
{
	struct jfsnvj *j = jfsnvj_of(inode->i_sb);
	int error;

	/* The thread that writes it back makes it look clean first, and commits it then. */
	if (is_written_back(inode))
		return jfsnvj_fsync(inode);
	down_read(&j->opened);
	error = jfsnvj_sync(JFS_SBI(inode->i_sb)->log, 1);
	up_read(&j->opened);
	return error;
}

/* wait > 1: at an umount, or a remount read-only. */
void jfs_flush_journal(struct jfs_log *log, int wait)
{
	if (!log)
		return;
	if (wait > 1)
		jfsnvj_come_to_rest(of(log), true);
	else if (wait)
		(void)jfsnvj_commit(of(log), 0);
	else
		jfsnvj_thread_commit(of(log));
}

void jfs_syncpt(struct jfs_log *log, int hard_sync)
{
}

int lmLogOpen(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	int error;

	down_write(&j->opened);
	error = jfsnvj_open(j);
	if (!error)
		JFS_SBI(sb)->log = &j->log;
	up_write(&j->opened);
	return error;
}

int lmLogClose(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	int error;

	down_write(&j->opened);
	JFS_SBI(sb)->log = NULL;
	error = jfsnvj_close(j);
	up_write(&j->opened);
	return error;
}
