/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A walk over the records of one partition, from the low of the tail to the
 * high of the last commit. Each record is copied out before it is checked.
 */
#ifndef NVJ_WALK_H
#define NVJ_WALK_H

#include "scan.h"

#define NVJ_ALL_PARTITIONS (~0u)
#define NVJ_ALL_HASHES (UINT64_C(1) << 32)

struct nvj_walker {
	const struct nvj_scan *scan;
	uint32_t partition; /* the ring */
	uint32_t only;      /* NVJ_ALL_PARTITIONS, or: records of blocks of this partition */
	/* Only records of blocks with a hash (its upper half) in this range. */
	uint64_t hash_low, hash_size;
	uint64_t position; /* the position of the next record, or of the damaged one */
	struct nvj_disk_record header;
	_Alignas(NVJ_LINE_BYTES) uint8_t lines[NVJ_BLOCK_BYTES];
};

/* NULL: no memory. */
struct nvj_walker *nvj_walker_new(const struct nvj_platform *platform, const struct nvj_scan *scan,
				  uint32_t partition);
void nvj_walker_free(const struct nvj_platform *platform, struct nvj_walker *w);

/* Goes to the start of a ring. */
void nvj_walker_start(struct nvj_walker *w, uint32_t partition);

/*
 * 1: header and lines are those of the next record, which is sound. 0: the end.
 * Or NVJ_EUCLEAN.
 */
int nvj_walker_next(struct nvj_walker *w);

/*
 * The same for the record at a position of the ring, which a walk has found
 * before. 0: it is skipped.
 */
int nvj_walker_read(struct nvj_walker *w, uint64_t position);

#endif
