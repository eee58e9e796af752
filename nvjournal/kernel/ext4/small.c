// SPDX-License-Identifier: GPL-2.0
/*
 * journal_data=small: the data of small files goes to the region with all else, so
 * that an fsync of one waits for no disk. ext4 can journal a file's data, and sees
 * to its pages, holes and truncations (data=journal, chattr +j); here it is chosen
 * file by file: those of up to EXT4NVJ_SMALL_BYTES, and those with the attribute j.
 *
 * It is chosen as an inode comes into memory. A file that outgrows the size goes on
 * as others do, after its blocks have been brought home and revoked: what is in the
 * journal would else be replayed over what was written past it. It does not come
 * back while its inode is in memory.
 */
#include <linux/sched/mm.h>

#include "fs/ext4/ext4.h"
#include "fs/ext4/ext4_jbd2.h"

static bool journals_small(struct super_block *sb)
{
	const struct ext4nvj *nvj = EXT4_SB(sb)->s_nvj;

	return nvj && nvj->options.journal_small;
}

/* Files of ext4's own it writes as metadata, past their pages. */
static bool can_journal(struct inode *inode)
{
	return S_ISREG(inode->i_mode) && inode->i_ino >= EXT4_FIRST_INO(inode->i_sb) &&
	       !ext4_test_inode_flag(inode, EXT4_INODE_EA_INODE) && !IS_DAX(inode) &&
	       !IS_ENCRYPTED(inode) && !IS_VERITY(inode);
}

/* Before the inode's pages get their operations; nothing of it is dirty. */
void ext4nvj_choose_data(struct inode *inode)
{
	bool chosen = journals_small(inode->i_sb) && can_journal(inode) &&
		      (ext4_test_inode_flag(inode, EXT4_INODE_JOURNAL_DATA) ||
		       i_size_read(inode) <= EXT4NVJ_SMALL_BYTES);

	if (chosen)
		ext4_set_inode_state(inode, EXT4NVJ_STATE_DATA);
	else
		ext4_clear_inode_state(inode, EXT4NVJ_STATE_DATA);
}

/* The blocks of a small file, of that size; their number, or an error. */
static int blocks_of(struct inode *inode, loff_t bytes, u64 blocks[EXT4NVJ_SMALL_BLOCKS])
{
	ext4_lblk_t end = DIV_ROUND_UP(bytes, i_blocksize(inode));
	struct ext4_map_blocks map = {};
	int count = 0, found, i;

	/* It has none: what is in the inode is no data to the journal. */
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
 * All data of the file that is in the journal is brought home. The number of its
 * blocks that would be replayed all the same, or an error; 0: also where all others
 * had to come home with them, by a checkpoint, as nothing of that is replayed.
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
 * All data of the file that is in the journal is at home: its pages can go, and the
 * disk be read.
 */
int ext4nvj_data_home(struct inode *inode)
{
	u64 blocks[EXT4NVJ_SMALL_BLOCKS];

	if (!ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA))
		return 0;
	return min(blocks_home(inode, blocks), 0);
}

/*
 * The same, and nothing of it is replayed any more: its blocks can be written past
 * the journal. Under the inode's lock, and with page faults held off, it stays so.
 */
int ext4nvj_data_past(struct inode *inode)
{
	if (!ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA))
		return 0;
	return jbd2_journal_flush(EXT4_JOURNAL(inode), 0);
}

/*
 * An fsync of the file commits this, too: it comes before what it writes is told to
 * be safe. The commit flushes the disk before, so what it ends is there for good.
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

/* As ext4nvj_data_past, but only the file's own blocks are written. */
static int take_past(struct inode *inode)
{
	u64 blocks[EXT4NVJ_SMALL_BLOCKS];
	int err = blocks_home(inode, blocks);

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

	/* What was stored to mapped pages is journaled by this. */
	filemap_invalidate_lock(inode->i_mapping);
	err = filemap_write_and_wait(inode->i_mapping);
	if (err)
		goto unlock;
	percpu_down_write(&sbi->s_writepages_rwsem);
	nofs = memalloc_nofs_save();
	/* A file that has nothing yet has nothing to bring home. */
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

/* The file is about to have so many bytes; under the inode's lock, with no handle. */
int ext4nvj_will_have(struct inode *inode, loff_t bytes)
{
	if (bytes <= EXT4NVJ_SMALL_BYTES ||
	    likely(!ext4_test_inode_state(inode, EXT4NVJ_STATE_DATA)) ||
	    ext4_test_inode_flag(inode, EXT4_INODE_JOURNAL_DATA))
		return 0;
	return leave_journal(inode);
}

/* The same, of an fallocate(2). */
int ext4nvj_will_allocate(struct inode *inode, int mode, loff_t offset, loff_t bytes)
{
	if (mode & FALLOC_FL_INSERT_RANGE)
		return ext4nvj_will_have(inode, i_size_read(inode) + bytes);
	if (mode & (FALLOC_FL_KEEP_SIZE | FALLOC_FL_COLLAPSE_RANGE))
		return 0;
	return ext4nvj_will_have(inode, offset + bytes);
}

/* chattr +j */
int ext4nvj_allow_journal_data(struct inode *inode)
{
	if (journals_small(inode->i_sb))
		return 0;
	ext4_msg(inode->i_sb, KERN_NOTICE,
		 "chattr +j is refused: file data is not journaled, unless mounted with "
		 "journal_data=small (inode %lu)",
		 inode->i_ino);
	return -EOPNOTSUPP;
}
