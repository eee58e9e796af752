/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world for the production core to run in: a region and a disk in memory, that
 * record what is done to them. The disk has a cache, ends writes in any order,
 * and fails when told to. What the engine must never do in any world is noticed
 * here: a write outside of the region, a change of an image that is being
 * written, a queue that is too full.
 */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include "../../include/nvjournal.h"
#include "random.h"
#include "trace.h"

struct world {
	uint8_t *region; /* as the processor sees it */
	size_t region_bytes;
	uint8_t *disk; /* as a read sees it */
	uint32_t blocks;
	struct trace trace;
	struct random random;
	struct random moves; /* of threads to other processors */
	struct nvj_persistence persistence;
	/* What it does with stores and fences besides noting them; NULL: nothing. See plain_file.h.
	 */
	const struct nvj_persistence *under;
	struct nvj_platform platform;
	struct nvj_region nvj_region;
	struct {
		struct nvj_write *write[NVJ_QUEUE_DEPTH];
		uint32_t id[NVJ_QUEUE_DEPTH];
		size_t started[NVJ_QUEUE_DEPTH]; /* its event */
		unsigned count;
		uint32_t owner; /* the thread whose writes these are */
	} queue[NVJ_MAX_QUEUES];
	uint32_t write_ids;
	uint32_t writes_until_error; /* 0: never */
	uint32_t allocations_until_error;
	int64_t allocated; /* pieces of memory not yet released */
	uint64_t reads;    /* of blocks */
	bool any_block;    /* a block beyond the disk is an error of the disk, not a wrong */
	int aborted;       /* the error told */
	char wrong[200];   /* what must not be, the first of it; or empty */
	void *user;        /* of whoever uses it */
};

/* Uses the memory given, which outlives it. */
void world_begin(struct world *w, uint8_t *region, size_t region_bytes, uint8_t *disk,
		 uint32_t blocks, uint64_t seed);
void world_end(struct world *w);

/* Notes what must not be. */
__attribute__((format(printf, 2, 3))) void world_wrong(struct world *w, const char *format, ...);

/* The caller's own write of a block to the disk, for good when it returns. */
void world_write(struct world *w, uint64_t block, const void *image);

#endif
