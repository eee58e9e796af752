/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A partition: one of the rings, the blocks whose records are there, and the writes of
 * their homes.
 */
#ifndef NVJ_PARTITION_H
#define NVJ_PARTITION_H

#include "block.h"

struct nvj_home_write {
	struct nvj_write write;
	struct nvj_block *block;
	uint64_t tid;   /* of the version */
	uint8_t *bytes; /* a copy of the version, NVJ_BLOCK_BYTES */
	struct nvj_home_write *next;
};

/*
 * Writes to homes, by one thread at a time, on the platform's queue of that
 * number.
 */
struct nvj_home_queue {
	unsigned number;
	unsigned under_way;
	struct nvj_partition *round; /* whose blocks are written; NULL: nvj_bring_home */
	struct nvj_home_write writes[NVJ_QUEUE_DEPTH];
	struct nvj_home_write *free_writes;
};

struct nvj_partition {
	/* Atomic: the position of the next record. */
	NVJ_ALONE uint64_t head;

	/* Read by all threads that log; written by a checkpoint. */
	NVJ_ALONE uint8_t *lines; /* of the ring, in the region */
	/*
	 * For each line of the ring, atomic: position << 8 | number of lines of
	 * the persistent records of one reservation that starts there. The index
	 * is nvj_flag_at. Positions stay below 2^56: NVJ_MAX_POSITION.
	 */
	uint64_t *flags;
	struct nvj_bucket *buckets;
	unsigned bucket_shift; /* index of a number times NVJ_HASH */
	unsigned index;
	/* Atomic positions in the ring. At alarm, check limit and end. */
	uint64_t alarm;
	uint64_t half;  /* when head is here, a checkpoint should start */
	uint64_t limit; /* when head is here, handles wait */
	uint64_t end;   /* here needed records would be overwritten: head never gets here */

	/* Atomic: all records before it have flags. See flags.c. */
	NVJ_ALONE uint64_t last_check;

	/*
	 * Atomic: the highest sequence of an evicted block of this partition. New
	 * entries for its blocks continue there, because the rings may still have
	 * records of their block. In a line of its own: each new entry reads it,
	 * and few evictions change it.
	 */
	NVJ_ALONE uint64_t sequence;

	/*
	 * For all fields from here to block_slabs. What a new entry changes is in
	 * one cache line.
	 */
	NVJ_ALONE struct nvj_lock list_lock;
	struct nvj_block *dirty;
	struct nvj_image *free_images;
	struct nvj_image *bare_images; /* free images without memory */
	uint64_t images;               /* atomic to read: with memory */
	struct nvj_block *free_blocks;
	uint64_t blocks;      /* atomic to read: of the entries in block_slabs, not free */
	uint64_t most_blocks; /* how many clean entries may stay, by default */
	/* Atomic to read: at tid mod NVJ_SLOTS. Each commit reads these. */
	struct nvj_block *listed[NVJ_LISTS][NVJ_SLOTS];
	/*
	 * The clock hand: the next entry that it examines. NULL, or at the end of
	 * the slab: the first one of the next slab, or of the first slab.
	 */
	struct nvj_slab *clock;
	unsigned clock_at;
	uint64_t entries; /* in block_slabs */
	/* Counters, atomic: of entries that are now used for another block. */
	uint64_t records;
	uint64_t batches;
	uint64_t zero_lines;
	uint64_t freezes;
	struct nvj_slab *image_slabs;
	struct nvj_slab *block_slabs;

	/* Of the thread that has claimed the partition in a round. */
	NVJ_ALONE uint64_t claimed; /* atomic: the last round for which a thread claimed it */
	struct nvj_home_queue home;
};

#endif
