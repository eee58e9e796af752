// SPDX-License-Identifier: GPL-2.0
/*
 * The superblocks on the disk, which are marked while the disk is mounted
 * (nvjournal/jfs/super.c). The copy is marked first and unmarked last: JFS reads
 * the first one, and fsck.jfs would repair it from a copy that is not marked.
 */
#include <linux/blkdev.h>
#include <linux/buffer_head.h>

#include "journal.h"
#include "../../jfs/jfs.h"

int jfsnvj_read_super(struct super_block *sb, u64 block, void *image)
{
	struct buffer_head *bh = sb_bread(sb, block);

	if (!bh)
		return -EIO;
	memcpy(image, bh->b_data, NVJ_JFS_BLOCK_BYTES);
	brelse(bh);
	return 0;
}

/* What is to become of a superblock. state < 0: it stays. */
static int change(struct super_block *sb, u64 block, int state, bool marked)
{
	const struct nvjk_mount *mount = jfsnvj_of(sb)->mount;
	struct buffer_head *bh = sb_bread(sb, block);
	int error;

	if (!bh)
		return -EIO;
	lock_buffer(bh);
	if (marked)
		nvj_jfs_mark(bh->b_data, mount->uuid, mount->mark_block);
	else
		nvj_jfs_unmark(bh->b_data);
	if (state >= 0)
		nvj_jfs_set_state(bh->b_data, state);
	unlock_buffer(bh);
	mark_buffer_dirty(bh);
	error = sync_dirty_buffer(bh);
	brelse(bh);
	return error;
}

static int flush(struct super_block *sb)
{
	int error = blkdev_issue_flush(sb->s_bdev);

	return error == -EOPNOTSUPP ? 0 : error;
}

static int mark(struct super_block *sb, int state)
{
	int error = change(sb, NVJ_JFS_SUPER_COPY, -1, true);

	if (!error)
		error = change(sb, NVJ_JFS_SUPER, state, true);
	return error ?: flush(sb);
}

static int unmark(struct super_block *sb, int state)
{
	int error = flush(sb);

	if (!error)
		error = change(sb, NVJ_JFS_SUPER, state, false);
	if (!error)
		error = change(sb, NVJ_JFS_SUPER_COPY, -1, false);
	return error ?: flush(sb);
}

int jfsnvj_unmark(struct super_block *sb)
{
	struct nvj_jfs_super super;
	void *block = (void *)__get_free_page(GFP_KERNEL);
	int error = block ? jfsnvj_read_super(sb, NVJ_JFS_SUPER, block) : -ENOMEM;

	if (!error && !nvj_jfs_read_super(block, &super))
		error = -EUCLEAN;
	free_page((unsigned long)block);
	/* An error that JFS found before stays: fsck.jfs must look at the disk. */
	return error ?: unmark(sb, super.state == NVJ_JFS_DIRTY ? -1 : NVJ_JFS_CLEAN);
}

int jfsnvj_update_super(struct super_block *sb, unsigned int state)
{
	struct jfsnvj *j = jfsnvj_of(sb);
	int error;

	/* The disk waits for its region. */
	if (READ_ONCE(j->aborted) && state == FM_CLEAN)
		return 0;
	if (state == FM_CLEAN)
		error = unmark(sb, FM_CLEAN);
	else if (!j->nvj) /* JFS finds an error while it mounts: fsck.jfs must accept the disk */
		error = change(sb, NVJ_JFS_SUPER, state, false) ?: flush(sb);
	else
		error = mark(sb, state);
	if (!error)
		JFS_SBI(sb)->state = state;
	return error;
}
