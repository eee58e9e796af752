/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Recovery, as nvj_open uses it: nvj_recover_with, and what an engine needs to
 * go on from there.
 *
 * How nvj_open goes on (rule of the anchor): heads of the rings are high[], the
 * next free transaction is sealed_tid + 1, and the anchor gets that number, with
 * low = high = high[] for each partition. Only when its seal is fenced may the
 * first record be written. The tail may stay, or move to the anchor.
 */
#ifndef NVJ_RECOVER_H
#define NVJ_RECOVER_H

#include "format.h"

struct nvj_recovered {
	struct nvj_geometry geometry;
	struct nvj_disk_super super;
	uint64_t last_tid;   /* the last COMMIT or ANCHOR: the tail now, all up to it is at home */
	uint64_t sealed_tid; /* the highest sealed: last_tid, or MERGED ones after it */
	/* Of last_tid: nothing at or after it in the ring counts. One for each partition. */
	uint64_t high[NVJ_MAX_PARTITIONS];
};

/*
 * nvj_recover_with, and on success (0) what it came to. recovered may be NULL.
 * run may be NULL: in turn. Errors as nvj_recover, NVJ_ENOMEM.
 */
int nvj_recover_into(const struct nvj_region *region, const struct nvj_platform *platform,
		     nvj_run *run, struct nvj_report *report, struct nvj_recovered *recovered);

#endif
