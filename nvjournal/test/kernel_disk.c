/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The disk of the kernel modules reads and writes no block beyond the end of its device:
 * a region may name any, and the sector of a high one is that of another block in 64 bits.
 * This compiles the file of the kernel that checks it, kernel/platform/disk.c.
 */
#include <errno.h>
#include <stdlib.h>

#include "include/nvjournal.h"
#include "lib/expect.h"

/* --- As in the kernel ------------------------------------------------------------- */

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;
typedef struct {
	u64 value;
} atomic64_t;

struct bio;
struct block_device {
	loff_t bytes;
};

enum { GFP_KERNEL };
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, to) (*(volatile __typeof__(x) *)&(x) = (to))
#define atomic64_inc(at) ((void)(at)->value++)
#define atomic64_read(at) ((at)->value)
#define bdev_nr_bytes(device) ((device)->bytes)
#define block_size(device) ((void)(device), NVJ_BLOCK_BYTES)
#define blkdev_issue_flush(device) ((void)(device), 0)
#define kvzalloc(size, flags) calloc(1, size)
#define kvfree(memory) free(memory)
#define spin_lock_init(lock) ((void)(lock))
#define init_waitqueue_head(wait) ((void)(wait))

/* As in platform.h. */
struct nvjk_disk;
struct nvjk_disk_hooks {
	void *context;
	int (*before_commit)(void *context, u64 tid);
	void (*aborted)(void *context, int error, u64 block);
	void (*writes)(void *context, u64 block, struct bio *bio);
	void (*logged_later)(void *context, u64 tid, u64 block, u32 lines);
};
struct nvjk_disk_counts {
	u64 reads, writes, flushes, marks, errors;
};
int nvjk_disk_open(struct nvjk_disk **disk, struct block_device *bdev,
		   const struct nvjk_disk_hooks *hooks);
void nvjk_disk_close(struct nvjk_disk *disk);
const struct nvj_platform *nvjk_disk_platform(const struct nvjk_disk *disk);
void nvjk_disk_end_recovery(struct nvjk_disk *disk);
void nvjk_disk_hold(struct nvjk_disk *disk, bool held);
void nvjk_disk_no_flush(struct nvjk_disk *disk, bool no_flush);
u64 nvjk_disk_writes_ended(const struct nvjk_disk *disk);
void nvjk_disk_counts(const struct nvjk_disk *disk, struct nvjk_disk_counts *counts);

/* As in internal.h; of the other files of the platform, the disk needs these. */
#define NVJK_INTERNAL_H
struct nvjk_queue {
	int lock, wait;
};
struct nvjk_disk {
	struct nvj_platform platform;
	struct nvjk_disk_hooks hooks;
	struct block_device *bdev;
	bool recovering, no_flush, held;
	atomic64_t reads, writes, flushes, marks, errors;
	struct nvjk_queue queue[NVJ_MAX_QUEUES];
};

#define nvjk_allocate NULL
#define nvjk_allocate_block NULL
#define nvjk_release NULL
#define nvjk_wait NULL
#define nvjk_wake NULL
#define nvjk_cpu NULL
#define nvjk_alone NULL
#define nvjk_now_ns NULL
#define nvjk_finish_write NULL
#define nvjk_tail_moved NULL
#define nvjk_io_init(disk) 0
#define nvjk_io_exit(disk) ((void)(disk))
#define nvjk_mark_exit(disk) ((void)(disk))
#define nvjk_cache_flush(disk) 0

/* How many blocks were read or written. */
static unsigned cache_reads, cache_writes, bios;

static int nvjk_cache_read(struct nvjk_disk *disk, u64 block, void *image)
{
	(void)disk, (void)block, (void)image;
	cache_reads++;
	return 0;
}

static int nvjk_cache_write(struct nvjk_disk *disk, u64 block, const void *image)
{
	(void)disk, (void)block, (void)image;
	cache_writes++;
	return 0;
}

static void nvjk_write_ended(struct nvjk_queue *queue, struct nvj_write *write, int error)
{
	(void)queue;
	write->error = error;
}

static void nvjk_start_bio(struct nvjk_disk *disk, struct nvjk_queue *queue,
			   struct nvj_write *write)
{
	(void)disk, (void)queue, (void)write;
	bios++;
}

#pragma GCC diagnostic ignored "-Wsign-compare" /* as the kernel is compiled */
#include "kernel/platform/disk.c"

/* --- The test --------------------------------------------------------------------- */

enum { BLOCKS = 100 };

static void a_block_beyond_the_end_is_refused(const struct nvj_platform *p, bool recovering)
{
	const u64 far[] = {BLOCKS, (UINT64_C(1) << 52) + 5, (UINT64_C(1) << 61) + 5,
			   UINT64_C(1) << 63, UINT64_MAX - 1};
	struct nvj_write write = {.block = BLOCKS - 1};
	unsigned reads = cache_reads, writes = cache_writes + bios;

	for (unsigned n = 0; n < sizeof(far) / sizeof(far[0]); n++) {
		struct nvj_write other = {.block = far[n]};

		expect(p->start_write(p->context, 0, &other) == NVJ_EIO);
		expect(p->read(p->context, far[n], NULL) == NVJ_EIO);
	}
	expect(cache_reads == reads && cache_writes + bios == writes);
	expect(p->start_write(p->context, 0, &write) == 0 && write.error == 0);
	expect(p->read(p->context, BLOCKS - 1, NULL) == 0);
	expect(cache_reads == reads + 1);
	expect((recovering ? cache_writes : bios) == 1 && cache_writes + bios == writes + 1);
}

int main(void)
{
	/* The last block is not whole. */
	struct block_device device = {.bytes = BLOCKS * NVJ_BLOCK_BYTES + 512};
	struct nvjk_disk_counts counts;
	struct nvjk_disk *disk;

	expect(nvjk_disk_open(&disk, &device, NULL) == 0);
	a_block_beyond_the_end_is_refused(nvjk_disk_platform(disk), true);
	nvjk_disk_end_recovery(disk);
	a_block_beyond_the_end_is_refused(nvjk_disk_platform(disk), false);
	nvjk_disk_counts(disk, &counts);
	expect(counts.errors == 20 && counts.reads == 2);
	nvjk_disk_close(disk);
	return 0;
}
