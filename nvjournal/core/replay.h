/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The two passes over a partition: the first one examines everything, the
 * second one replays. Each pass runs for all partitions, in parallel where the
 * platform can.
 */
#ifndef NVJ_REPLAY_H
#define NVJ_REPLAY_H

#include "scan.h"

struct nvj_index;

/* The result of one partition. */
struct nvj_part {
	int error; /* NVJ_EUCLEAN: the record at position of the ring is damaged */
	uint32_t ring;
	uint64_t position;
	/* By nvj_examine: */
	uint64_t lines;       /* read */
	uint64_t changes;     /* committed records that change a block */
	uint64_t revokes;     /* committed revokes */
	uint64_t uncommitted; /* records that were skipped */
	/*
	 * With NVJ_PLACE_CPU and several rings: where the committed records before
	 * position indexed of the ring are. The caller frees it.
	 */
	struct nvj_index *index;
	uint64_t indexed;
	/* By nvj_replay, of the blocks of the partition: */
	uint64_t records; /* records of changes, without those that a revoke cancelled */
	uint64_t blocks;  /* written home */
};

/* Examines each record of a ring. */
void nvj_examine(const struct nvj_scan *scan, const struct nvj_platform *platform,
		 uint32_t partition, struct nvj_part *part);

/*
 * Replays the blocks of a partition, after nvj_examine found all rings sound. rings
 * has what it found in each, and all has the sums. Changes are applied to the images
 * of blocks, and the images are written home if write is true. Otherwise they are
 * only counted.
 */
void nvj_replay(const struct nvj_scan *scan, const struct nvj_platform *platform,
		uint32_t partition, bool write, const struct nvj_part *rings,
		const struct nvj_part *all, struct nvj_part *part);

#endif
