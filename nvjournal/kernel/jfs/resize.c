// SPDX-License-Identifier: GPL-2.0
/*
 * remount,resize=: JFS extends the file system (fs/jfs/resize.c).
 *
 * JFS does so outside its log. It ends all transactions, and makes a new log behind the
 * old end. Then it changes pages of the maps and the superblocks in place. A crash
 * meanwhile leaves some of them changed. fsck.jfs cannot repair each such disk.
 *
 * So the journal gets what the disk has of these blocks, before JFS changes one. It is
 * committed, and recovery writes it home: the file system then is as it was before. At
 * the end one transaction revokes all of these blocks. With its commit the file system
 * is extended: from then on recovery writes none of them. The disk is marked all the
 * time.
 *
 * From the first commit to the second one the engine must write nothing home. It has no
 * reason to: nothing else is logged meanwhile, and the ring is nearly empty.
 *
 * Of the maps only what recovery does not make anew is committed: the control page of
 * the block map, the page that has the old end, those of the summaries above it, and the
 * inode of the block map. Other pages are new, behind the old end, or only their working
 * half changes.
 *
 * The mark of the journal's tail is in the first block of JFS's log, so it moves. The old
 * one stays readable until the second commit.
 */
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "journal.h"
#include "jfs_dmap.h"
#include "jfs_imap.h"
#include "jfs_xtree.h"
#include "../../jfs/jfs.h"

#define MOST_BLOCKS 12u

/* The blocks that the journal gets. */
struct jfsnvj_before {
	struct nvj_handle handle;
	u64 block[MOST_BLOCKS];
	unsigned int count;
	u8 image[NVJ_BLOCK_BYTES];
};

int jfsnvj_resize_check(struct super_block *sb, s64 old_end, s64 log_block, s64 log_blocks)
{
	const xtroot_t *root = &JFS_IP(JFS_SBI(sb)->ipbmap)->i_xtroot;

	if (log_block <= old_end) {
		nvjk_say(sb, KERN_ERR,
			 "resize is refused: choose more than %lld blocks, so that JFS's own log "
			 "does not overlap the old one",
			 old_end + log_blocks);
		return -EOPNOTSUPP;
	}
	/* Each extension adds a few extents to the block map. */
	if (!(root->header.flag & BT_LEAF) ||
	    le16_to_cpu(root->header.nextindex) + 4 > le16_to_cpu(root->header.maxentry)) {
		nvjk_say(sb, KERN_ERR,
			 "resize is refused: the disk was extended too often; unmount it, mount it "
			 "as jfs, and resize it there");
		return -EOPNOTSUPP;
	}
	return 0;
}

/*
 * A page of an empty log of so many blocks. The first is not JFS's; the second describes
 * the log. Pages of records follow, in a ring that begins with the page of the highest
 * number, which has the only record.
 */
static void make_log_page(void *block, int number, int blocks, u32 flag)
{
	struct logpage *page = block;
	struct logsuper *super = block;
	u32 end = LOGPHDRSIZE;

	memset(block, 0, LOGPSIZE);
	if (number == 0)
		return;
	if (number == 1) {
		super->magic = cpu_to_le32(LOGMAGIC);
		super->version = cpu_to_le32(LOGVERSION);
		super->size = cpu_to_le32(blocks);
		super->bsize = cpu_to_le32(NVJ_JFS_BLOCK_BYTES);
		super->l2bsize = cpu_to_le32(ilog2(NVJ_JFS_BLOCK_BYTES));
		super->flag = cpu_to_le32(flag);
		super->state = cpu_to_le32(LOGREDONE);
		super->end = cpu_to_le32(2 * LOGPSIZE + LOGPHDRSIZE + LOGRDSIZE);
		return;
	}
	if (number == 2) {
		((struct lrd *)page->data)->type = cpu_to_le16(LOG_SYNCPT);
		end += LOGRDSIZE;
	}
	page->h.page = page->t.page = cpu_to_le32(number == 2 ? blocks - 3 : number - 3);
	page->h.eor = page->t.eor = cpu_to_le16(end);
}

/* JFS calls it for its new log, behind the end of the file system. */
int lmLogFormat(struct jfs_log *log, s64 address, int blocks)
{
	struct super_block *sb = log->nvj->sb;
	int i, error;

	for (i = 0; i < blocks; i++) {
		struct buffer_head *bh = sb_getblk(sb, address + i);

		if (!bh)
			return -EIO;
		lock_buffer(bh);
		make_log_page(bh->b_data, i, blocks, JFS_SBI(sb)->mntflag);
		set_buffer_uptodate(bh);
		unlock_buffer(bh);
		mark_buffer_dirty(bh);
		brelse(bh);
	}
	error = sync_blockdev(sb->s_bdev);
	if (error)
		nvjk_say(sb, KERN_ERR,
			 "the file system cannot be extended: a new log of %d blocks cannot be "
			 "written at block %lld (error %d); nothing has changed",
			 blocks, address, error);
	return error;
}

static void add(struct jfsnvj_before *b, u64 block)
{
	unsigned int i;

	for (i = 0; i < b->count; i++)
		if (b->block[i] == block)
			return;
	b->block[b->count++] = block;
}

static int find_blocks(struct super_block *sb, struct jfsnvj_before *b)
{
	struct jfs_sb_info *sbi = JFS_SBI(sb);
	s64 last = sbi->bmap->db_mapsize - 1;
	const s64 pages[] = {
		0, /* the control page, and the first page of each level above the bits */
		1,
		2,
		3,
		BLKTOL1(last, sbi->l2nbperpage),
		BLKTOL0(last, sbi->l2nbperpage),
		BLKTODMAP(last, sbi->l2nbperpage),
	};
	unsigned int i;

	add(b, NVJ_JFS_SUPER);
	add(b, NVJ_JFS_SUPER_COPY);
	add(b, AITBL_OFF >> L2PSIZE);
	add(b, addressPXD(&sbi->ait2));
	for (i = 0; i < ARRAY_SIZE(pages); i++) {
		u64 block = jfsnvj_map_block(sbi->ipbmap, pages[i]);

		if (!block)
			return -EIO;
		add(b, block);
	}
	return 0;
}

/* Logs or revokes the blocks, and commits that. */
static int commit_blocks(struct jfsnvj *j, struct jfsnvj_before *b, bool revoke)
{
	unsigned int i;
	int error;

	error = nvj_start(j->nvj, &b->handle, b->count * NVJ_BLOCK_CREDITS);
	if (error)
		return error;
	for (i = 0; i < b->count && error >= 0; i++) {
		u64 block = b->block[i];

		error = revoke ? 0 : nvjk_disk_read_home(j->disk, block, b->image);
		if (error)
			break;
		jfsnvj_lock_one(j);
		if (revoke)
			error = nvj_revoke(&b->handle, block);
		else
			error = nvj_create(&b->handle, block)
					?: nvj_log(&b->handle, block, b->image, NVJ_ALL_LINES);
		jfsnvj_unlock_one(j);
	}
	jfsnvj_lock_one(j);
	(void)nvj_stop(&b->handle);
	jfsnvj_unlock_one(j);
	return error < 0 ? error : jfsnvj_commit(j, 0);
}

/*
 * JFS allocates blocks for the data of a file without a transaction, which would change
 * the block map while it is extended. A thread that reclaims memory may do so, too. JFS also
 * chooses an inode before it begins the transaction, and removes a file without a name by
 * transactions that nothing holds up. None of that is logged meanwhile, so a crash would
 * leave a part of it.
 */
void jfsnvj_resize_waits(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);

	down_write(&j->allocations);
	WRITE_ONCE(j->extends, current);
	j->allocations_nofs = memalloc_nofs_save();
}

void jfsnvj_allocation_begins(struct super_block *sb)
{
	down_read(&jfsnvj_of(sb)->allocations);
}

void jfsnvj_allocation_ends(struct super_block *sb)
{
	up_read(&jfsnvj_of(sb)->allocations);
}

int jfsnvj_resize_begins(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	struct jfsnvj_before *b = kzalloc(sizeof(*b), GFP_KERNEL);
	int error;

	if (!b)
		return -ENOMEM;
	error = find_blocks(sb, b) ?: lmLogShutdown(&j->log);
	if (error) {
		kfree(b);
		return error;
	}
	/* The commit thread may be writing home. */
	mutex_lock(&j->checkpoint_mutex);
	WRITE_ONCE(j->before, b);
	mutex_unlock(&j->checkpoint_mutex);
	nvjk_disk_hold(j->disk, true);
	error = commit_blocks(j, b, false);
	return error ? -EIO : 0;
}

/*
 * What JFS and the journal know of the new superblock. JFS ignores an error when it writes
 * that one. Then the disk has the old one, which is read here.
 */
static int take_super(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	void *block = (void *)__get_free_page(GFP_KERNEL);
	const struct jfs_superblock *raw = block;
	struct nvj_jfs_super super;
	int error = block ? jfsnvj_read_super(sb, NVJ_JFS_SUPER, block) : -ENOMEM;

	if (!error && !nvj_jfs_read_super(block, &super))
		error = -EUCLEAN;
	if (!error && super.log_block != j->log.base)
		error = -EIO;
	if (!error) {
		/* JFS does not expect to be extended twice. */
		JFS_SBI(sb)->logpxd = raw->s_logpxd;
		JFS_SBI(sb)->fsckpxd = raw->s_fsckpxd;
		j->mount->mark_block = super.log_block;
		nvjk_disk_move_mark(j->disk, super.log_block);
	}
	free_page((unsigned long)block);
	return error;
}

/*
 * The second commit. Before it, all that JFS has changed is on the disk, and the copies
 * of blocks that the engine has are dropped: JFS has changed them without it.
 */
static int commit_extension(struct super_block *sb, struct jfsnvj_before *b)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	int error;

	error = jfsnvj_write_maps(j) ?: take_super(sb);
	if (!error)
		error = jfsnvj_update_super(sb, JFS_SBI(sb)->state);
	if (error)
		return error;
	error = commit_blocks(j, b, true);
	if (!error) {
		nvjk_disk_hold(j->disk, false);
		error = nvj_checkpoint(j->nvj);
	}
	return error;
}

int jfsnvj_resize_ends(struct super_block *sb, int error)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	struct jfsnvj_before *b = READ_ONCE(j->before);

	if (b && !error)
		error = commit_extension(sb, b);
	if (b && error) {
		nvjk_say(sb, KERN_ERR,
			 "the file system cannot be extended (error %d); recovery makes it as it "
			 "was before",
			 error);
		nvj_abort(j->nvj, -EIO);
	}
	if (!b && error)
		nvjk_say(sb, KERN_ERR, "the file system cannot be extended (error %d)", error);
	WRITE_ONCE(j->before, NULL);
	WRITE_ONCE(j->at_rest, false);
	kfree(b);
	jfsnvj_is_read_only_now(j);
	memalloc_nofs_restore(j->allocations_nofs);
	WRITE_ONCE(j->extends, NULL);
	up_write(&j->allocations);
	return error;
}
