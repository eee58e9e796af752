// SPDX-License-Identifier: GPL-2.0
/*
 * Ordered data: what an inode's new size or blocks promise must be on the disk
 * before the transaction that says so. ext4 names files and ranges; a commit
 * writes them, or waits for them, and flushes the disk's cache.
 *
 * There is one list for all transactions. A commit takes the whole of it, so it
 * may write data of a later transaction too early, which does no harm.
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
	memset(jinode, 0, sizeof(*jinode));
	jinode->i_vfs_inode = inode;
	INIT_LIST_HEAD(&jinode->i_list);
	INIT_LIST_HEAD(&jinode->i_next_list);
}

/* The inode goes: nobody wants its data any more. A commit may be at it. */
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

/* Later kernels' ext4 has a function of its own for it. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
/*
 * Page by page, and not by ext4's writepages: that would allocate blocks, with a
 * handle of its own. Pages without blocks are left alone.
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
 * The file is about to be cut to new_size, by a handle that may be of a later
 * transaction than one that wants its data and is being committed: what is cut
 * off must be on the disk first. What only running transactions want goes with
 * them.
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

/* What was listed until now is the commit's; what comes is the next one's. */
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
		smp_mb(); /* the flag before the look for who waits */
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

/* All are written, then all are waited for; the first error is returned. */
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
		/* The option data_err=abort says whether that is the journal's concern. */
		if (READ_ONCE(j->journal.j_flags) & JBD2_ABORT_ON_SYNCDATA_ERR)
			return -EIO;
	}
	return nvjk_flush_data(j) ? -EIO : 0;
}

/* --- The disk's cache -------------------------------------------------------------- */

/*
 * Writes of file data and of blocks to their homes are counted as they end, by who
 * makes them (the edits of ext4, and platform/disk_io.c), before their writer is told.
 * So if there were none since the last flush there is nothing that anybody could want
 * to be flushed. The kernel's own statistics would not do: they can be turned off.
 */
void jbd2_journal_wrote(journal_t *journal)
{
	atomic64_inc(&nvjk_of(journal)->data_writes);
}

/* Not inlined: a test lets it do nothing, and must see the loss (test/faults). */
noinline int nvjk_flush_data(struct nvjk_journal *j)
{
	u64 ended;
	int error;

	if (!(READ_ONCE(j->journal.j_flags) & JBD2_BARRIER))
		return 0;
	ended = atomic64_read(&j->data_writes) + nvjk_disk_writes_ended(j->disk);
	if (!j->always_flush && ended == READ_ONCE(j->flushed_writes))
		return 0;
	/* What has ended by now is flushed; what ends later may not be. */
	smp_mb();
	atomic64_inc(&j->data_flushes);
	error = blkdev_issue_flush(j->journal.j_fs_dev);
	/* Two at once may store either's number: the smaller one only flushes once more. */
	if (!error)
		WRITE_ONCE(j->flushed_writes, ended);
	return error;
}
