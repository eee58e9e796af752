/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What the superblock, the tail and the commit ring say: which transactions are
 * committed, and from where to where each ring must be read. The first half of
 * recovery, of a check and of a dump. Reads only.
 */
#ifndef NVJ_SCAN_H
#define NVJ_SCAN_H

#include "format.h"

struct nvj_scan {
	struct nvj_geometry geometry;
	struct nvj_disk_super super;
	unsigned super_damaged; /* bit n: of copy n */
	unsigned tail_damaged;
	uint64_t tail_tid;
	uint64_t last_tid;                 /* the last COMMIT or ANCHOR */
	uint64_t sealed_tid;               /* the end of the run of sealed slots */
	uint64_t transactions;             /* committed after tail_tid */
	uint64_t low[NVJ_MAX_PARTITIONS];  /* of tail_tid: where reading begins */
	uint64_t high[NVJ_MAX_PARTITIONS]; /* of last_tid: where it ends */
	uint64_t *committed;               /* bit tid - tail_tid - 1: committed. commits bits */
	struct nvj_commit_buffer slot;     /* the one looked at, and its bounds so far: */
	uint64_t run_low[NVJ_MAX_PARTITIONS], run_high[NVJ_MAX_PARTITIONS];
};

/*
 * 0: *scan is to be released by nvj_scan_end. NVJ_EUCLEAN: the report says what
 * is damaged. Others as nvj_read_super; NVJ_ENOMEM. *scan is NULL on an error.
 */
int nvj_scan_begin(const struct nvj_region *region, const struct nvj_platform *platform,
		   struct nvj_report *report, struct nvj_scan **scan);
void nvj_scan_end(const struct nvj_platform *platform, struct nvj_scan *scan);

/* A record of tid is to be replayed: it is committed and not yet at home. */
static inline bool nvj_scan_counts(const struct nvj_scan *s, uint64_t tid)
{
	uint64_t n = tid - s->tail_tid - 1;

	return tid > s->tail_tid && tid <= s->last_tid && s->committed[n / 64] >> n % 64 & 1;
}

/* Notes a finding; the first NVJ_MAX_FINDINGS are kept. */
void nvj_find(struct nvj_report *report, enum nvj_finding_kind kind, uint32_t partition,
	      uint64_t position, uint64_t offset);

#endif
