/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Opens a block device exclusively by its path. The functions differ between
 * kernels.
 */
#ifndef NVJK_DEVICE_H
#define NVJK_DEVICE_H

#include <linux/blkdev.h>
#include <linux/version.h>

struct nvjk_device {
	struct block_device *bdev;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	struct file *file;
#endif
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)

static inline int nvjk_device_open(struct nvjk_device *device, const char *path, void *holder)
{
	struct file *file =
		bdev_file_open_by_path(path, BLK_OPEN_READ | BLK_OPEN_WRITE, holder, NULL);

	if (IS_ERR(file))
		return PTR_ERR(file);
	device->file = file;
	device->bdev = file_bdev(file);
	return 0;
}

static inline void nvjk_device_close(struct nvjk_device *device)
{
	bdev_fput(device->file);
}

/* See region.c. */
static inline void nvjk_device_say_dax(struct request_queue *queue, bool has)
{
	if (has)
		queue->limits.features |= BLK_FEAT_DAX;
	else
		queue->limits.features &= ~BLK_FEAT_DAX;
}

#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)

#define NVJK_DEVICE_MODE (FMODE_READ | FMODE_WRITE | FMODE_EXCL)

static inline int nvjk_device_open(struct nvjk_device *device, const char *path, void *holder)
{
	device->bdev = blkdev_get_by_path(path, NVJK_DEVICE_MODE, holder);
	return PTR_ERR_OR_ZERO(device->bdev);
}

static inline void nvjk_device_close(struct nvjk_device *device)
{
	blkdev_put(device->bdev, NVJK_DEVICE_MODE);
}

/* See region.c. */
static inline void nvjk_device_say_dax(struct request_queue *queue, bool has)
{
	if (has)
		blk_queue_flag_set(QUEUE_FLAG_DAX, queue);
	else
		blk_queue_flag_clear(QUEUE_FLAG_DAX, queue);
}

#else
#error "these modules know Linux 6.1 to 6.4, and 6.9 and later"
#endif

#endif
