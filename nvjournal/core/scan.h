/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Reads the superblock, the tail and the commit ring: which transactions are
 * committed, and which part of each ring must be read. This is the first half
 * of recovery, of a check and of a dump. It writes nothing.
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
	uint64_t low[NVJ_MAX_PARTITIONS];  /* of tail_tid: where reading starts */
	uint64_t high[NVJ_MAX_PARTITIONS]; /* of last_tid: where it ends */
	uint64_t *committed;           /* commits bits; bit tid - tail_tid - 1: tid is committed */
	struct nvj_commit_buffer slot; /* the slot being checked, and the bounds up to it: */
	uint64_t run_low[NVJ_MAX_PARTITIONS], run_high[NVJ_MAX_PARTITIONS];
};

/*
 * 0: the caller frees *scan with nvj_scan_end. NVJ_EUCLEAN: the report names
 * the damage. Other errors as nvj_read_super, and NVJ_ENOMEM. *scan is NULL
 * after an error.
 */
int nvj_scan_begin(const struct nvj_region *region, const struct nvj_platform *platform,
		   struct nvj_report *report, struct nvj_scan **scan);
void nvj_scan_end(const struct nvj_platform *platform, struct nvj_scan *scan);

/*
 * Says whether a record of tid must be replayed: tid is committed and not at
 * home.
 */
static inline bool nvj_scan_counts(const struct nvj_scan *s, uint64_t tid)
{
	uint64_t n = tid - s->tail_tid - 1;

	return tid > s->tail_tid && tid <= s->last_tid && s->committed[n / 64] >> n % 64 & 1;
}

/* Adds a finding to the report. The first NVJ_MAX_FINDINGS are kept. */
void nvj_find(struct nvj_report *report, enum nvj_finding_kind kind, uint32_t partition,
	      uint64_t position, uint64_t offset);

#endif
