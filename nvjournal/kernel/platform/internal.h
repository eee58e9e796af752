/* SPDX-License-Identifier: GPL-2.0 */
/* Declarations for the files of the platform. */
#ifndef NVJK_INTERNAL_H
#define NVJK_INTERNAL_H

#include <linux/atomic.h>
#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "platform.h"

/* memory.c */
void *nvjk_allocate(void *context, size_t bytes);
void *nvjk_allocate_block(void *context);
void nvjk_release(void *context, void *memory, size_t bytes);

/* wait.c */
void nvjk_wait(void *context, const u32 *word, u32 expected, u64 timeout_ns);
void nvjk_wake(void *context, const u32 *word);
bool nvjk_alone(void *context);
unsigned int nvjk_cpu(void *context);
u64 nvjk_now_ns(void *context);

/* media.c */
unsigned long nvjk_copy_mc(void *to, const void *from, size_t bytes);
/* The read function of the region, for the engine. */
int nvjk_media_read(void *to, const void *from, size_t bytes);
/*
 * Says whether some of these bytes of a device are in a known bad block; *bad:
 * its offset.
 */
bool nvjk_media_is_bad(struct block_device *bdev, u64 offset, u64 bytes, u64 *bad);

/* persist.c: nvj_persistence(NULL) with counters. */
struct nvjk_persist {
	struct nvj_persistence table; /* first: what the engine is given */
	const struct nvj_persistence *way;
	struct nvjk_persist_counts __percpu *counts;
};

int nvjk_persist_init(struct nvjk_persist *persist);
void nvjk_persist_exit(struct nvjk_persist *persist);
void nvjk_persist_sum(const struct nvjk_persist *persist, struct nvjk_persist_counts *counts);

/* Writes of one queue that have ended and are not fetched yet. */
struct nvjk_queue {
	spinlock_t lock;         /* taken in interrupts */
	struct nvj_write *ended; /* linked by their field platform */
	wait_queue_head_t wait;
	struct blk_plug plug; /* of its thread: writes started since it last fetched one */
	bool plugged;
} ____cacheline_aligned_in_smp;

struct nvjk_disk {
	struct nvj_platform platform; /* its context is this */
	struct nvjk_disk_hooks hooks;
	struct block_device *bdev;
	struct bio_set bios;
	bool recovering;
	bool no_flush;
	bool held;         /* no block may be written home */
	struct page *mark; /* NULL: none is written */
	bool mark_failed;  /* a write of it did, and was logged */
	u64 mark_block;
	u8 mark_uuid[16];
	atomic64_t reads, writes, flushes, marks, errors;
	struct nvjk_queue queue[NVJ_MAX_QUEUES];
};

/* disk_io.c */
/* The write can be fetched. error other than 0: it failed. */
void nvjk_write_ended(struct nvjk_queue *queue, struct nvj_write *write, int error);
int nvjk_io_init(struct nvjk_disk *disk);
void nvjk_io_exit(struct nvjk_disk *disk);
void nvjk_start_bio(struct nvjk_disk *disk, struct nvjk_queue *queue, struct nvj_write *write);
struct nvj_write *nvjk_finish_write(void *context, unsigned int queue);

/* disk_mark.c */
void nvjk_tail_moved(void *context, u64 tid);
void nvjk_mark_exit(struct nvjk_disk *disk);

/* disk_cache.c: uses the device's buffer cache. */
int nvjk_cache_read(struct nvjk_disk *disk, u64 block, void *image);
int nvjk_cache_write(struct nvjk_disk *disk, u64 block, const void *image);
int nvjk_cache_flush(struct nvjk_disk *disk);

#endif
