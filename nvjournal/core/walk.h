/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A walk over the records of one partition, from the low of the tail to the
 * high of the last commit. Each record is copied out before it is checked.
 */
#ifndef NVJ_WALK_H
#define NVJ_WALK_H

#include "scan.h"

struct nvj_walker {
	const struct nvj_scan *scan;
	uint32_t partition;
	uint64_t position; /* the position of the next record, or of the damaged one */
	struct nvj_disk_record header;
	_Alignas(NVJ_LINE_BYTES) uint8_t lines[NVJ_BLOCK_BYTES];
};

/* NULL: no memory. */
struct nvj_walker *nvj_walker_new(const struct nvj_platform *platform, const struct nvj_scan *scan,
				  uint32_t partition);
void nvj_walker_free(const struct nvj_platform *platform, struct nvj_walker *w);

/* Returns to the start of the partition. */
void nvj_walker_rewind(struct nvj_walker *w);

/*
 * 1: header and lines are those of the next record, which is sound. 0: the end.
 * Or NVJ_EUCLEAN.
 */
int nvj_walker_next(struct nvj_walker *w);

#endif
