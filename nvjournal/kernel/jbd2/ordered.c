// SPDX-License-Identifier: GPL-2.0
/*
 * Ordered data: the data of a file must be on the disk before a transaction
 * commits that refers to them, such as by a new size or new blocks. ext4 names
 * files and ranges. A commit writes them, or waits for them, and flushes the
 * disk's cache.
 *
 * There is one list for all transactions, and a commit takes all of it. So it
 * may write data of a later transaction too early, which is harmless.
 */
#include <linux/version.h>
#include <linux/writeback.h>

#include "journal.h"

struct kmem_cache *nvjk_inode_cache;

/* --- Files ------------------------------------------------------------------ */

struct jbd2_inode *jbd2_alloc_inode(gfp_t gfp)
{
	return kmem_cache_alloc(nvjk_inode_cache, gfp);
}

void jbd2_free_inode(struct jbd2_inode *jinode)
{
	kmem_cache_free(nvjk_inode_cache, jinode);
}

void jbd2_journal_init_jbd_inode(struct jbd2_inode *jinode, struct inode *inode)
{
	/* The other fields are set when a handle or a commit wants the data. */
	jinode->i_transaction = NULL;
	jinode->i_vfs_inode = inode;
	jinode->i_flags = 0;
	jinode->i_dirty_start = jinode->i_dirty_end = 0;
	jinode->i_next_tid = 0;
	INIT_LIST_HEAD(&jinode->i_list);
	INIT_LIST_HEAD(&jinode->i_next_list);
}

/*
 * The inode is being freed, so its data are not needed any more. A commit may
 * be using it.
 */
void jbd2_journal_release_jbd_inode(journal_t *journal, struct jbd2_inode *jinode)
{
	struct nvjk_journal *j;

	if (!journal)
		return;
	j = nvjk_of(journal);
	spin_lock(&j->list_lock);
	while (test_bit(__JI_COMMIT_RUNNING, &jinode->i_flags)) {
		spin_unlock(&j->list_lock);
		wait_on_bit(&jinode->i_flags, __JI_COMMIT_RUNNING, TASK_UNINTERRUPTIBLE);
		spin_lock(&j->list_lock);
	}
	list_del_init(&jinode->i_next_list);
	spin_unlock(&j->list_lock);
}

static int want_data(handle_t *handle, struct jbd2_inode *jinode, unsigned long flags, loff_t start,
		     loff_t length)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j;
	loff_t end = start + length - 1;

	if (is_handle_aborted(handle))
		return -EROFS;
	if (length <= 0)
		return 0;
	j = nvjk_of(handle->h_journal);
	spin_lock(&j->list_lock);
	if (list_empty(&jinode->i_next_list)) {
		jinode->i_next_flags = flags;
		jinode->i_next_start = start;
		jinode->i_next_end = end;
		jinode->i_next_tid = h->nvj.tid;
		list_add_tail(&jinode->i_next_list, &j->data_inodes);
	} else {
		jinode->i_next_flags |= flags;
		jinode->i_next_start = min(jinode->i_next_start, start);
		jinode->i_next_end = max(jinode->i_next_end, end);
		jinode->i_next_tid = max(jinode->i_next_tid, h->nvj.tid);
	}
	spin_unlock(&j->list_lock);
	return 0;
}

int jbd2_journal_inode_ranged_write(handle_t *handle, struct jbd2_inode *jinode, loff_t start,
				    loff_t length)
{
	return want_data(handle, jinode, JI_WRITE_DATA | JI_WAIT_DATA, start, length);
}

int jbd2_journal_inode_ranged_wait(handle_t *handle, struct jbd2_inode *jinode, loff_t start,
				   loff_t length)
{
	return want_data(handle, jinode, JI_WAIT_DATA, start, length);
}

/* ext4 of later kernels has its own function for this. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
/*
 * Writes page by page. ext4's writepages would allocate blocks, with a handle
 * of its own. Pages without blocks are skipped.
 */
int jbd2_journal_submit_inode_data_buffers(struct jbd2_inode *jinode)
{
	struct address_space *mapping = jinode->i_vfs_inode->i_mapping;
	struct writeback_control control = {
		.sync_mode = WB_SYNC_ALL,
		.nr_to_write = mapping->nrpages * 2,
		.range_start = jinode->i_dirty_start,
		.range_end = jinode->i_dirty_end,
	};

	return generic_writepages(mapping, &control);
}
#endif

int jbd2_journal_finish_inode_data_buffers(struct jbd2_inode *jinode)
{
	return filemap_fdatawait_range_keep_errors(jinode->i_vfs_inode->i_mapping,
						   jinode->i_dirty_start, jinode->i_dirty_end);
}

/*
 * The file will be truncated to new_size by a handle. That handle may belong to
 * a later transaction than one that needs the data and is being committed. So
 * the truncated data must be on the disk first. Data that only running
 * transactions need are dropped with them.
 */
int jbd2_journal_begin_ordered_truncate(journal_t *journal, struct jbd2_inode *jinode,
					loff_t new_size)
{
	struct nvjk_journal *j = nvjk_of(journal);
	bool wanted;

	spin_lock(&j->list_lock);
	wanted = test_bit(__JI_COMMIT_RUNNING, &jinode->i_flags) ||
		 (!list_empty(&jinode->i_next_list) && jinode->i_next_tid < READ_ONCE(j->newest));
	spin_unlock(&j->list_lock);
	if (!wanted)
		return 0;
	return filemap_fdatawrite_range(jinode->i_vfs_inode->i_mapping, new_size, LLONG_MAX);
}

/* --- Before a commit ----------------------------------------------------------- */

/*
 * The commit takes all inodes that are listed now. Later ones belong to the
 * next commit.
 */
static void take_inodes(struct nvjk_journal *j, u64 tid, struct list_head *taken)
{
	struct jbd2_inode *jinode;

	spin_lock(&j->list_lock);
	while (!list_empty(&j->data_inodes)) {
		jinode = list_first_entry(&j->data_inodes, struct jbd2_inode, i_next_list);
		list_del_init(&jinode->i_next_list);
		jinode->i_dirty_start = jinode->i_next_start;
		jinode->i_dirty_end = jinode->i_next_end;
		jinode->i_flags = jinode->i_next_flags | JI_COMMIT_RUNNING;
		list_add_tail(&jinode->i_list, taken);
	}
	if (j->data_tid < tid)
		j->data_tid = tid;
	spin_unlock(&j->list_lock);
}

static void release_inodes(struct nvjk_journal *j, struct list_head *taken)
{
	struct jbd2_inode *jinode;

	spin_lock(&j->list_lock);
	while (!list_empty(taken)) {
		jinode = list_first_entry(taken, struct jbd2_inode, i_list);
		list_del_init(&jinode->i_list);
		jinode->i_flags = 0;
		smp_mb(); /* the flag changes before the check for waiting threads */
		wake_up_bit(&jinode->i_flags, __JI_COMMIT_RUNNING);
	}
	spin_unlock(&j->list_lock);
}

static int write_inode_data(struct nvjk_journal *j, struct jbd2_inode *jinode)
{
	if (!(jinode->i_flags & JI_WRITE_DATA) || !j->journal.j_submit_inode_data_buffers)
		return 0;
	return j->journal.j_submit_inode_data_buffers(jinode);
}

static int wait_inode_data(struct nvjk_journal *j, struct jbd2_inode *jinode)
{
	if (!j->journal.j_finish_inode_data_buffers)
		return 0;
	return j->journal.j_finish_inode_data_buffers(jinode);
}

/* First all are written, then it waits for all. Returns the first error. */
static int write_data(struct nvjk_journal *j, struct list_head *taken)
{
	struct jbd2_inode *jinode;
	int error = 0;

	list_for_each_entry(jinode, taken, i_list)
	{
		int one = write_inode_data(j, jinode);

		error = error ? error : one;
	}
	list_for_each_entry(jinode, taken, i_list)
	{
		int one = wait_inode_data(j, jinode);

		error = error ? error : one;
		atomic64_inc(&j->data_inodes_done);
	}
	return error;
}

int nvjk_ordered_before_commit(struct nvjk_journal *j, u64 tid)
{
	LIST_HEAD(taken);
	int error;

	take_inodes(j, tid, &taken);
	error = write_data(j, &taken);
	release_inodes(j, &taken);
	if (error) {
		pr_warn_ratelimited("EXT4NVJ-fs (%s): file data could not be written before a "
				    "commit: error %d\n",
				    j->name, error);
		/*
		 * The option data_err=abort says whether this aborts the
		 * journal.
		 */
		if (READ_ONCE(j->journal.j_flags) & JBD2_ABORT_ON_SYNCDATA_ERR)
			return -EIO;
	}
	return nvjk_flush_data(j) ? -EIO : 0;
}

/* --- The disk's cache -------------------------------------------------------------- */

/*
 * Writes of file data, and of blocks to their homes, are counted when they end:
 * by the edits of ext4 and by platform/disk_io.c, before the writer is
 * informed. If there was none since the last flush, no flush is needed. The
 * kernel's own statistics are not used, because they can be turned off.
 */
void jbd2_journal_wrote(journal_t *journal)
{
	atomic64_inc(&nvjk_of(journal)->data_writes);
}

/*
 * Not inlined: a test replaces it with a no-op, and must then see data loss
 * (test/faults).
 */
noinline int nvjk_flush_data(struct nvjk_journal *j)
{
	u64 ended;
	int error;

	if (!(READ_ONCE(j->journal.j_flags) & JBD2_BARRIER))
		return 0;
	/*
	 * A write is counted before its end is announced. The caller has seen the end, and
	 * must see the count. Many announcements are read without an order.
	 */
	smp_rmb();
	ended = atomic64_read(&j->data_writes) + nvjk_disk_writes_ended(j->disk);
	if (!j->always_flush && ended == READ_ONCE(j->flushed_writes))
		return 0;
	/*
	 * Writes that have ended before this are flushed. Later ones may not
	 * be.
	 */
	smp_mb();
	atomic64_inc(&j->data_flushes);
	error = blkdev_issue_flush(j->journal.j_fs_dev);
	/*
	 * Two threads may store their numbers in any order: the smaller number
	 * only causes one more flush.
	 */
	if (!error)
		WRITE_ONCE(j->flushed_writes, ended);
	return error;
}
