// SPDX-License-Identifier: GPL-2.0
/*
 * journal_data=small: the data of small files go to the region, too, so that
 * their fsync waits for no disk. ext4 can journal the data of a file, and then
 * handles its pages, holes and truncations (data=journal, chattr +j). Here this
 * is chosen for each file: files of at most EXT4NVJ_SMALL_BYTES, and files with
 * the attribute j.
 *
 * The choice is made when an inode is read into memory. A file that grows
 * beyond the size is then written like other files. Before that, its blocks are
 * brought home and revoked, because otherwise recovery would replay logged data
 * over data that was written without the journal. The file does not change back
 * while its inode is in memory.
 */
#include <linux/sched/mm.h>

#include "fs/ext4/ext4.h"
#include "fs/ext4/ext4_jbd2.h"

bool ext4nvj_journals_small(struct super_block *sb)
{
	const struct nvjk_mount *nvj = EXT4_SB(sb)->s_nvj;

	return nvj && nvj->options.journal_small;
}

/* ext4 writes its internal files as metadata, without their pages. */
static bool can_journal(struct inode *inode)
{
	return S_ISREG(inode->i_mode) && inode->i_ino >= EXT4_FIRST_INO(inode->i_sb) &&
	       !ext4_test_inode_flag(inode, EXT4_INODE_EA_INODE) && !IS_DAX(inode) &&
	       !IS_ENCRYPTED(inode) && !IS_VERITY(inode);
}

/*
 * Called before the operations of the inode's pages are set. None of them is
 * dirty.
 */
void ext4nvj_choose_data(struct inode *inode)
{
	bool chosen = ext4nvj_journals_small(inode->i_sb) && can_journal(inode) &&
		      (ext4_test_inode_flag(inode, EXT4_INODE_JOURNAL_DATA) ||
		       i_size_read(inode) <= EXT4NVJ_SMALL_BYTES);

	if (chosen)
		ext4_set_inode_state(inode, EXT4NVJ_STATE_DATA);
	else
		ext4_clear_inode_state(inode, EXT4NVJ_STATE_DATA);
}

/*
 * Finds the blocks of a small file of that size. Returns their number, or an
 * error.
 */
static int blocks_of(struct inode *inode, loff_t bytes, u64 blocks[EXT4NVJ_SMALL_BLOCKS])
{
	ext4_lblk_t end = DIV_ROUND_UP(bytes, i_blocksize(inode));
	struct ext4_map_blocks map = {};
	int count = 0, found, i;

	/* It has none: for the journal, data in the inode are not file data. */
	if (ext4_has_inline_data(inode))
		return 0;
	for (; map.m_lblk < end; map.m_lblk += max(found, 1)) {
		map.m_len = end - map.m_lblk;
		found = ext4_map_blocks(NULL, inode, &map, 0);
		if (found < 0)
			return found;
		for (i = 0; i < found; i++)
			blocks[count++] = map.m_pblk + i;
	}
	return count;
}

/*
 * Brings home all data of the file that are in the journal. Returns the number
 * of blocks that recovery would still replay, or an error. It is also 0 if they
 * had to come home with all other blocks in a checkpoint, because then nothing
 * is replayed.
 */
static int blocks_home(struct inode *inode, u64 blocks[EXT4NVJ_SMALL_BLOCKS])
{
	journal_t *journal = EXT4_JOURNAL(inode);
	loff_t bytes = i_size_read(inode);
	int count, err;

	if (bytes > EXT4NVJ_SMALL_BYTES)
		return jbd2_journal_flush(journal, 0);
	count = blocks_of(inode, bytes, blocks);
	if (count < 0)
		return count;
	err = jbd2_complete_transaction(journal, EXT4_I(inode)->i_datasync_tid);
	if (!err)
		err = jbd2_journal_bring_home(journal, blocks, count);
	if (err == -EAGAIN)
		return jbd2_journal_flush(journal, 0);
	return err ? err : count;
}

/*
 * Brings home all data of the file that are in the journal. Then its pages can
 * be dropped, and the disk can be read.
 */
int ext4nvj_data_home(struct inode *inode)
{
	u64 blocks[EXT4NVJ_SMALL_BLOCKS];

	if (!ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA))
		return 0;
	return min(blocks_home(inode, blocks), 0);
}

/*
 * The same, and recovery replays nothing of it any more. So its blocks can be
 * written without the journal. The caller holds the inode's lock and blocks
 * page faults, so that it stays so.
 */
int ext4nvj_data_past(struct inode *inode)
{
	if (!ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA))
		return 0;
	return jbd2_journal_flush(EXT4_JOURNAL(inode), 0);
}

/*
 * fsync of the file also commits this: before it reports its data as safe. The
 * commit flushes the disk first, so the written data are persistent.
 */
static int revoke(struct inode *inode, const u64 *blocks, int count)
{
	handle_t *handle = ext4_journal_start_with_revoke(inode, EXT4_HT_MISC, 1, count);
	int err = 0, ended, i;

	if (IS_ERR(handle))
		return PTR_ERR(handle);
	for (i = 0; i < count && !err; i++)
		err = jbd2_journal_revoke(handle, blocks[i], NULL);
	ext4_update_inode_fsync_trans(handle, inode, 1);
	ended = ext4_journal_stop(handle);
	return err ? err : ended;
}

static void leave_page(journal_t *journal, struct page *page)
{
	struct buffer_head *head = folio_buffers(page_folio(page)), *bh = head;

	if (!head)
		return;
	do {
		jbd2_journal_leave(journal, bh);
		bh = bh->b_this_page;
	} while (bh != head);
}

static void leave_pages(struct inode *inode)
{
	pgoff_t end = DIV_ROUND_UP(i_size_read(inode), PAGE_SIZE), i;

	for (i = 0; i < end; i++) {
		struct page *page = find_lock_page(inode->i_mapping, i);

		if (!page)
			continue;
		leave_page(EXT4_JOURNAL(inode), page);
		unlock_page(page);
		put_page(page);
	}
}

/*
 * With clusters (bigalloc) ext4 neither frees nor revokes the rest of a cluster that a
 * truncation or a hole leaves in part, and the file may get these blocks again.
 */
static bool has_clusters(const struct inode *inode)
{
	return EXT4_SB(inode->i_sb)->s_cluster_ratio > 1;
}

/* As ext4nvj_data_past, but only the file's own blocks are written, if these are all known. */
static int take_past(struct inode *inode)
{
	u64 blocks[EXT4NVJ_SMALL_BLOCKS];
	int err;

	/* The hashes of fs-verity are beyond the file's size. */
	if (has_clusters(inode) || ext4_verity_in_progress(inode))
		err = ext4nvj_data_past(inode);
	else
		err = blocks_home(inode, blocks);
	if (err > 0)
		err = revoke(inode, blocks, err);
	if (!err)
		leave_pages(inode);
	return err;
}

static int leave_journal(struct inode *inode)
{
	struct ext4_sb_info *sbi = EXT4_SB(inode->i_sb);
	unsigned int nofs;
	int err;

	/* This journals the stores to mapped pages. */
	filemap_invalidate_lock(inode->i_mapping);
	err = filemap_write_and_wait(inode->i_mapping);
	if (err)
		goto unlock;
	percpu_down_write(&sbi->s_writepages_rwsem);
	nofs = memalloc_nofs_save();
	/* An empty file has nothing to bring home. */
	if (inode->i_blocks || inode->i_mapping->nrpages)
		err = take_past(inode);
	if (!err) {
		ext4_clear_inode_state(inode, EXT4NVJ_STATE_DATA);
		ext4_set_aops_as_chosen(inode);
	}
	memalloc_nofs_restore(nofs);
	percpu_up_write(&sbi->s_writepages_rwsem);
unlock:
	filemap_invalidate_unlock(inode->i_mapping);
	return err;
}

/*
 * The file will have that many bytes. The caller holds the inode's lock and has
 * no handle.
 */
int ext4nvj_will_have(struct inode *inode, loff_t bytes)
{
	if (bytes <= EXT4NVJ_SMALL_BYTES ||
	    likely(!ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA)) ||
	    ext4_test_inode_flag(inode, EXT4_INODE_JOURNAL_DATA))
		return 0;
	return leave_journal(inode);
}

/*
 * Called when the file got a property with which its data is not journaled once its inode
 * is read again: then nobody would revoke its blocks. The caller holds the inode's lock
 * and has no handle.
 */
int ext4nvj_will_not_journal(struct inode *inode)
{
	return ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA) ? leave_journal(inode) : 0;
}

/* As ext4nvj_will_have, for fallocate(2). */
int ext4nvj_will_allocate(struct inode *inode, int mode, loff_t offset, loff_t bytes)
{
	int err = 0;

	/* ext4 may write zeros to the rest of a cluster without the journal. */
	if (has_clusters(inode) && inode->i_blocks &&
	    !(mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE)))
		err = ext4nvj_data_past(inode);
	if (err)
		return err;
	if (mode & FALLOC_FL_INSERT_RANGE)
		return ext4nvj_will_have(inode, i_size_read(inode) + bytes);
	if (mode & (FALLOC_FL_KEEP_SIZE | FALLOC_FL_COLLAPSE_RANGE))
		return 0;
	return ext4nvj_will_have(inode, offset + bytes);
}

/* chattr +j */
int ext4nvj_allow_journal_data(struct inode *inode)
{
	if (ext4nvj_journals_small(inode->i_sb))
		return 0;
	ext4_msg(inode->i_sb, KERN_NOTICE,
		 "chattr +j is refused: file data is not journaled, unless mounted with "
		 "journal_data=small (inode %llu)",
		 (u64)inode->i_ino);
	return -EOPNOTSUPP;
}
