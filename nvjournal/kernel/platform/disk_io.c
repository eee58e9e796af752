// SPDX-License-Identifier: GPL-2.0
/*
 * Writes of blocks to their homes, by bio, without the device's buffer cache.
 * They end in an interrupt, and then stay in their queue until they are
 * fetched.
 */
#include <linux/mm.h>
#include <linux/vmalloc.h>

#include "internal.h"

#define SECTORS_OF_BLOCK (NVJ_BLOCK_BYTES >> SECTOR_SHIFT)

/* A write in progress. */
struct nvjk_io {
	struct nvjk_disk *disk;
	struct nvjk_queue *queue;
	struct nvj_write *write;
	struct bio bio; /* last: its pages follow it */
};

int nvjk_io_init(struct nvjk_disk *disk)
{
	/*
	 * That many bios are always available. So a queue makes progress even
	 * without free memory.
	 */
	return bioset_init(&disk->bios, NVJ_QUEUE_DEPTH, offsetof(struct nvjk_io, bio),
			   BIOSET_NEED_BVECS);
}

void nvjk_io_exit(struct nvjk_disk *disk)
{
	bioset_exit(&disk->bios);
}

void nvjk_write_ended(struct nvjk_queue *queue, struct nvj_write *write, int error)
{
	unsigned long flags;

	/*
	 * Everything, including the wake-up, is done under the lock. After the
	 * unlock, the thread that fetches this write may free the queue,
	 * because it may be the last write.
	 */
	spin_lock_irqsave(&queue->lock, flags);
	write->error = error ? NVJ_EIO : 0;
	write->platform = queue->ended;
	queue->ended = write;
	wake_up(&queue->wait);
	spin_unlock_irqrestore(&queue->lock, flags);
}

static void bio_ended(struct bio *bio)
{
	struct nvjk_io *io = container_of(bio, struct nvjk_io, bio);
	struct nvjk_queue *queue = io->queue;
	struct nvj_write *write = io->write;
	int error = blk_status_to_errno(bio->bi_status);

	atomic64_inc(error ? &io->disk->errors : &io->disk->writes);
	bio_put(bio);
	nvjk_write_ended(queue, write, error);
}

static struct page *page_of(const void *memory)
{
	return is_vmalloc_addr(memory) ? vmalloc_to_page(memory) : virt_to_page(memory);
}

void nvjk_start_bio(struct nvjk_disk *disk, struct nvjk_queue *queue, struct nvj_write *write)
{
	/*
	 * REQ_SYNC: threads that wait for room wait for this write, so it must
	 * not be delayed like writeback.
	 */
	struct bio *bio = bio_alloc_bioset(disk->bdev, 1, REQ_OP_WRITE | REQ_META | REQ_SYNC,
					   GFP_NOIO, &disk->bios);
	struct nvjk_io *io = container_of(bio, struct nvjk_io, bio);

	io->disk = disk;
	io->queue = queue;
	io->write = write;
	bio->bi_iter.bi_sector = (sector_t)write->block * SECTORS_OF_BLOCK;
	bio->bi_end_io = bio_ended;
	/*
	 * The 4096 bytes of an image are an allocation of their own, aligned to
	 * a page (memory.c).
	 */
	__bio_add_page(bio, page_of(write->image), NVJ_BLOCK_BYTES, 0);
	if (disk->hooks.writes)
		disk->hooks.writes(disk->hooks.context, write->block, bio);
	/*
	 * The writes arrive in order, so neighbours become one request of the
	 * disk.
	 */
	if (!queue->plugged) {
		queue->plugged = true;
		blk_start_plug(&queue->plug);
	}
	submit_bio(bio);
}

struct nvj_write *nvjk_finish_write(void *context, unsigned int number)
{
	struct nvjk_disk *disk = context;
	struct nvjk_queue *queue = &disk->queue[number];
	struct nvj_write *write;

	if (queue->plugged) {
		queue->plugged = false;
		blk_finish_plug(&queue->plug);
	}
	/*
	 * One thread at a time uses the queue, so no other thread removes what
	 * is in it.
	 */
	wait_event(queue->wait, READ_ONCE(queue->ended));
	spin_lock_irq(&queue->lock);
	write = queue->ended;
	queue->ended = write->platform;
	spin_unlock_irq(&queue->lock);
	return write;
}
