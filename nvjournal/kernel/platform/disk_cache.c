// SPDX-License-Identifier: GPL-2.0
/*
 * Reads and writes of recovery use the device's buffer cache. A file system
 * that is being mounted has read its superblock before, and must see the
 * recovered content there.
 */
#include <linux/buffer_head.h>
#include <linux/pagemap.h>
#include <linux/version.h>

#include "internal.h"

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define CACHE_OF(bdev) ((bdev)->bd_mapping)
#else
#define CACHE_OF(bdev) ((bdev)->bd_inode->i_mapping)
#endif

int nvjk_disk_drop_cache(struct block_device *bdev)
{
	/* Errors of earlier writes are not the caller's. */
	(void)sync_blockdev(bdev);
	invalidate_bdev(bdev);
	return invalidate_inode_pages2(CACHE_OF(bdev));
}

int nvjk_cache_read(struct nvjk_disk *disk, u64 block, void *image)
{
	struct buffer_head *bh = __bread(disk->bdev, block, NVJ_BLOCK_BYTES);

	if (!bh)
		return NVJ_EIO;
	memcpy(image, bh->b_data, NVJ_BLOCK_BYTES);
	brelse(bh);
	return 0;
}

int nvjk_cache_write(struct nvjk_disk *disk, u64 block, const void *image)
{
	struct buffer_head *bh = __getblk(disk->bdev, block, NVJ_BLOCK_BYTES);

	if (!bh) {
		atomic64_inc(&disk->errors);
		return NVJ_EIO;
	}
	lock_buffer(bh);
	memcpy(bh->b_data, image, NVJ_BLOCK_BYTES);
	set_buffer_uptodate(bh);
	unlock_buffer(bh);
	mark_buffer_dirty(bh);
	brelse(bh);
	atomic64_inc(&disk->writes);
	return 0;
}

int nvjk_cache_flush(struct nvjk_disk *disk)
{
	int error = sync_blockdev(disk->bdev);

	return error ? error : blkdev_issue_flush(disk->bdev);
}
