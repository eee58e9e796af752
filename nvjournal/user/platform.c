/* SPDX-License-Identifier: Apache-2.0 */
/* The platform of the engine on Linux: memory, futex, clock, and a disk. */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <limits.h>

#include "clock.h"
#include "disk.h"
#include "nvjournal_user.h"
#include "processor.h"

/*
 * An allocation of this size or more uses large pages. The flags of a ring are
 * that large, and each lap accesses all of them.
 */
#define LARGE_PAGE_BYTES ((size_t)2 << 20)
#define LARGE_BYTES (2 * LARGE_PAGE_BYTES)

static size_t alignment(size_t bytes)
{
	if (bytes >= LARGE_BYTES)
		return LARGE_PAGE_BYTES;
	/*
	 * A whole page is aligned to a page, so that O_DIRECT can write images
	 * without a copy.
	 */
	if (bytes >= NVJ_BLOCK_BYTES && bytes % NVJ_BLOCK_BYTES == 0)
		return NVJ_BLOCK_BYTES;
	return NVJ_LINE_BYTES;
}

static void *allocate_block(void *context)
{
	void *memory;

	(void)context;
	if (posix_memalign(&memory, alignment(NVJ_BLOCK_BYTES), NVJ_BLOCK_BYTES))
		return NULL;
	return memory;
}

static void *allocate(void *context, size_t bytes)
{
	size_t rounded = (bytes + NVJ_LINE_BYTES - 1) & ~(size_t)(NVJ_LINE_BYTES - 1);
	void *memory;

	(void)context;
	if (rounded < bytes)
		return NULL;
	if (!rounded)
		rounded = NVJ_LINE_BYTES;
	if (posix_memalign(&memory, alignment(rounded), rounded))
		return NULL;
	/* If the kernel has no large pages, small ones are used. */
	if (rounded >= LARGE_BYTES)
		(void)madvise(memory, rounded, MADV_HUGEPAGE);
	memset(memory, 0, rounded);
	return memory;
}

static void release(void *context, void *memory, size_t bytes)
{
	(void)context;
	(void)bytes;
	free(memory);
}

static void wait_at(void *context, const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(timeout_ns / 1000000000u),
		.tv_nsec = (long)(timeout_ns % 1000000000u),
	};
	int saved = errno;

	(void)context;
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns ? &timeout : NULL, NULL,
		0);
	errno = saved;
}

static void wake(void *context, const uint32_t *word)
{
	int saved = errno;

	(void)context;
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

static unsigned cpu(void *context)
{
	(void)context;
	return nvju_processor();
}

static bool add_here(void *context, unsigned cpu, uint64_t *word, uint64_t value)
{
	(void)context;
	return nvju_add_here(cpu, word, value);
}

static void yield(void *context)
{
	(void)context;
	sched_yield();
}

static uint64_t now_ns(void *context)
{
	(void)context;
	return nvju_monotonic_ns();
}

static int read_block(void *context, uint64_t block, void *image)
{
	struct nvju_platform *platform = context;

	int error = platform->disk ? nvju_disk_read(platform->disk, block, image) : NVJ_EIO;

	if (error && platform->disk)
		nvju_disk_keep_failure(platform->disk);
	return error;
}

static int start_write(void *context, unsigned queue, struct nvj_write *write)
{
	struct nvju_platform *platform = context;

	return platform->disk ? nvju_disk_start_write(platform->disk, queue, write) : NVJ_EIO;
}

static struct nvj_write *finish_write(void *context, unsigned queue)
{
	struct nvju_platform *platform = context;

	return platform->disk ? nvju_disk_finish_write(platform->disk, queue) : NULL;
}

static int flush(void *context)
{
	struct nvju_platform *platform = context;

	return platform->disk ? nvju_disk_flush(platform->disk) : NVJ_EIO;
}

void nvju_platform_init(struct nvju_platform *platform, struct nvju_disk *disk)
{
	*platform = (struct nvju_platform){
		.platform =
			{
				.context = platform,
				.allocate = allocate,
				.allocate_block = allocate_block,
				.release = release,
				.wait = wait_at,
				.wake = wake,
				.cpu = cpu,
				.add_here = nvju_can_add_here() ? add_here : NULL,
				.yield = yield,
				.now_ns = now_ns,
				.read = read_block,
				.start_write = start_write,
				.finish_write = finish_write,
				.flush = flush,
			},
		.disk = disk,
	};
}

void nvju_uuid(uint8_t uuid[16])
{
	size_t have = 0;

	while (have < 16) {
		ssize_t n = getrandom(uuid + have, 16 - have, 0);

		if (n > 0)
			have += (size_t)n;
	}
	/* Version 4, variant 1 (RFC 9562): random, and so never 0. */
	uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x40);
	uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}
