// SPDX-License-Identifier: GPL-2.0
/* A file system's block device as the engine's platform. */
#include <linux/slab.h>

#include "internal.h"

/*
 * A crafted region may name any block. The sector of one beyond the end may be that
 * of another block, in 64 bits.
 */
static bool has(const struct nvjk_disk *disk, u64 block)
{
	return block < (u64)bdev_nr_bytes(disk->bdev) / NVJ_BLOCK_BYTES;
}

static int read(void *context, u64 block, void *image)
{
	struct nvjk_disk *disk = context;
	int error = has(disk, block) ? nvjk_cache_read(disk, block, image) : NVJ_EIO;

	atomic64_inc(error ? &disk->errors : &disk->reads);
	return error;
}

static int start_write(void *context, unsigned int number, struct nvj_write *write)
{
	struct nvjk_disk *disk = context;
	struct nvjk_queue *queue = &disk->queue[number];

	if (READ_ONCE(disk->held))
		return NVJ_EIO;
	if (!has(disk, write->block)) {
		atomic64_inc(&disk->errors);
		return NVJ_EIO;
	}
	if (READ_ONCE(disk->recovering))
		nvjk_write_ended(queue, write, nvjk_cache_write(disk, write->block, write->image));
	else
		nvjk_start_bio(disk, queue, write);
	return 0;
}

static int flush(void *context)
{
	struct nvjk_disk *disk = context;
	int error;

	if (READ_ONCE(disk->recovering)) {
		error = nvjk_cache_flush(disk);
	} else if (READ_ONCE(disk->no_flush)) {
		return 0;
	} else {
		error = blkdev_issue_flush(disk->bdev);
	}
	atomic64_inc(error ? &disk->errors : &disk->flushes);
	return error ? NVJ_EIO : 0;
}

static int before_commit(void *context, u64 tid)
{
	struct nvjk_disk *disk = context;

	return disk->hooks.before_commit(disk->hooks.context, tid);
}

static void aborted(void *context, int error, u64 block)
{
	struct nvjk_disk *disk = context;

	disk->hooks.aborted(disk->hooks.context, error, block);
}

static void logged_later(void *context, u64 tid, u64 block, u32 lines)
{
	struct nvjk_disk *disk = context;

	disk->hooks.logged_later(disk->hooks.context, tid, block, lines);
}

int nvjk_disk_open(struct nvjk_disk **result, struct block_device *bdev,
		   const struct nvjk_disk_hooks *hooks)
{
	struct nvjk_disk *disk;
	int error, i;

	*result = NULL;
	if (block_size(bdev) != NVJ_BLOCK_BYTES)
		return -EINVAL;
	disk = kvzalloc(sizeof(*disk), GFP_KERNEL);
	if (!disk)
		return -ENOMEM;
	error = nvjk_io_init(disk);
	if (error) {
		kvfree(disk);
		return error;
	}
	for (i = 0; i < NVJ_MAX_QUEUES; i++) {
		spin_lock_init(&disk->queue[i].lock);
		init_waitqueue_head(&disk->queue[i].wait);
	}
	disk->bdev = bdev;
	disk->recovering = true;
	if (hooks)
		disk->hooks = *hooks;
	disk->platform = (struct nvj_platform){
		.context = disk,
		.allocate = nvjk_allocate,
		.allocate_block = nvjk_allocate_block,
		.release = nvjk_release,
		.wait = nvjk_wait,
		.wake = nvjk_wake,
		.cpu = nvjk_cpu,
		.alone = nvjk_alone,
		.now_ns = nvjk_now_ns,
		.read = read,
		.start_write = start_write,
		.finish_write = nvjk_finish_write,
		.flush = flush,
		.before_commit = disk->hooks.before_commit ? before_commit : NULL,
		.tail_moved = nvjk_tail_moved,
		.aborted = disk->hooks.aborted ? aborted : NULL,
		.logged_later = disk->hooks.logged_later ? logged_later : NULL,
	};
	*result = disk;
	return 0;
}

void nvjk_disk_close(struct nvjk_disk *disk)
{
	if (!disk)
		return;
	/*
	 * The engine fetches each write that it has started before it closes. A
	 * write that can be fetched does not use its bio and its queue any
	 * more. So no write is in progress.
	 */
	nvjk_io_exit(disk);
	nvjk_mark_exit(disk);
	kvfree(disk);
}

const struct nvj_platform *nvjk_disk_platform(const struct nvjk_disk *disk)
{
	return &disk->platform;
}

void nvjk_disk_end_recovery(struct nvjk_disk *disk)
{
	WRITE_ONCE(disk->recovering, false);
}

void nvjk_disk_hold(struct nvjk_disk *disk, bool held)
{
	WRITE_ONCE(disk->held, held);
}

void nvjk_disk_no_flush(struct nvjk_disk *disk, bool no_flush)
{
	WRITE_ONCE(disk->no_flush, no_flush);
}

u64 nvjk_disk_writes_ended(const struct nvjk_disk *disk)
{
	return atomic64_read(&disk->writes) + atomic64_read(&disk->errors);
}

void nvjk_disk_counts(const struct nvjk_disk *disk, struct nvjk_disk_counts *counts)
{
	*counts = (struct nvjk_disk_counts){
		.reads = atomic64_read(&disk->reads),
		.writes = atomic64_read(&disk->writes),
		.flushes = atomic64_read(&disk->flushes),
		.marks = atomic64_read(&disk->marks),
		.errors = atomic64_read(&disk->errors),
	};
}
