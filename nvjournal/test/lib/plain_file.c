/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_file.h"
#include "schedule.h"

#include <string.h>

/*
 * The code itself, under other names. Its list of pages is the thread's; threads
 * of schedule.h are all of one, so it is put aside whenever another has its turn.
 */
#define msync plain_file_msync
#define nvju_region_use_msync plain_file_use_msync
#define MAX_RANGES 2u /* so that it is full now and then */
#include "../../user/region_file.c"
#undef msync
#undef nvju_region_use_msync

static struct {
	struct world *world;
	struct nvju_region region;
	struct {
		char dirty[sizeof(dirty)];
		unsigned ranges;
	} of[SCHEDULE_MAX_THREADS];
} file;

static void put_aside(void)
{
	memcpy(file.of[schedule_self()].dirty, dirty, sizeof(dirty));
	file.of[schedule_self()].ranges = ranges;
}

static void take_up(void)
{
	memcpy(dirty, file.of[schedule_self()].dirty, sizeof(dirty));
	ranges = file.of[schedule_self()].ranges;
}

int plain_file_msync(void *at, size_t bytes, int flags)
{
	struct world *w = file.world;
	size_t offset = (size_t)((uint8_t *)at - w->region);

	if (flags != MS_SYNC)
		world_wrong(w, "an msync with flags %d", flags);
	if (offset % PAGE || offset >= w->region_bytes || bytes > w->region_bytes - offset)
		world_wrong(w, "an msync of %zu bytes at %zu of a region of %zu", bytes, offset,
			    w->region_bytes);
	put_aside();
	trace_add(&w->trace, TRACE_SYNC_START, schedule_self(), offset, 0, NULL, bytes);
	schedule_point();
	trace_add(&w->trace, TRACE_SYNC_END, schedule_self(), offset, 0, NULL, bytes);
	take_up();
	return 0;
}

static void plain_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	take_up();
	file_write(p, to, from, bytes);
	put_aside();
}

static void plain_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	take_up();
	file_store64(p, to, value);
	put_aside();
}

static void plain_fence(const struct nvj_persistence *p)
{
	take_up();
	file_fence(p);
	put_aside();
}

void plain_file_begin(struct world *w)
{
	static struct nvj_persistence plain = {.name = "msync",
					       .write = plain_write,
					       .store64 = plain_store64,
					       .fence = plain_fence};

	memset(&file, 0, sizeof(file));
	file.world = w;
	/* What it sets is what it is called through here. */
	plain_file_use_msync(&file.region);
	if (file.region.persistence.write != file_write)
		world_wrong(w, "a plain file's region is not the one of region_file.c");
	w->under = &plain;
}
