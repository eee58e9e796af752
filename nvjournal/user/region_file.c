/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistence of a plain file: a fence is an msync of the pages that this
 * thread has written since its last fence. Each thread has its own list,
 * because a fence must return only when *its* stores are on the disk. With one
 * list for all threads, a thread could find its page removed by another thread
 * whose msync is still running.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "region.h"

#define PAGE UINT64_C(4096)
#ifndef MAX_RANGES /* a test uses fewer */
#define MAX_RANGES 32u
#endif

/*
 * Ranges of pages that this thread has written and not fenced yet, in any plain
 * file.
 */
static _Thread_local struct {
	uintptr_t from, to;
} dirty[MAX_RANGES];
static _Thread_local unsigned ranges;

static void sync_all(void)
{
	unsigned n;

	for (n = 0; n < ranges; n++) {
		/*
		 * ENOMEM: the region was closed meanwhile. For other errors a
		 * fence has no way to report a failure, so it is treated as
		 * failing memory.
		 */
		if (msync((void *)dirty[n].from, dirty[n].to - dirty[n].from, MS_SYNC) < 0 &&
		    errno != ENOMEM)
			raise(SIGBUS);
	}
	ranges = 0;
}

static void mark(const void *at, size_t bytes)
{
	uintptr_t from = (uintptr_t)at & ~(PAGE - 1);
	uintptr_t to = ((uintptr_t)at + bytes + PAGE - 1) & ~(PAGE - 1);
	unsigned n;

	for (n = 0; n < ranges; n++)
		if (from <= dirty[n].to && to >= dirty[n].from) {
			dirty[n].from = from < dirty[n].from ? from : dirty[n].from;
			dirty[n].to = to > dirty[n].to ? to : dirty[n].to;
			return;
		}
	if (ranges == MAX_RANGES) /* early is harmless: they are persistent at the next fence */
		sync_all();
	dirty[ranges].from = from;
	dirty[ranges].to = to;
	ranges++;
}

static void file_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	(void)p;
	memcpy(to, from, bytes);
	mark(to, bytes);
}

static void file_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	(void)p;
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
	mark(to, sizeof(*to));
}

static void file_fence(const struct nvj_persistence *p)
{
	int saved = errno;

	(void)p;
	sync_all();
	errno = saved;
	atomic_thread_fence(memory_order_seq_cst);
}

void nvju_region_use_msync(struct nvju_region *region)
{
	region->persistence = (struct nvj_persistence){
		.name = "msync",
		.write = file_write,
		.store64 = file_store64,
		.fence = file_fence,
		.context = region,
	};
	region->region.persistence = &region->persistence;
}
