/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Recovery for nvj_open: nvj_recover_with, and the values that an engine needs
 * to continue.
 *
 * How nvj_open continues (rule of the anchor): the heads of the rings are
 * high[]. The next free transaction is sealed_tid + 1, and the anchor gets that
 * number, with low = high = high[] for each partition. The first record may be
 * written only when the seal of the anchor is fenced. The tail may stay, or
 * move to the anchor.
 */
#ifndef NVJ_RECOVER_H
#define NVJ_RECOVER_H

#include "format.h"

struct nvj_recovered {
	struct nvj_geometry geometry;
	struct nvj_disk_super super;
	uint64_t last_tid;   /* the last COMMIT or ANCHOR; all up to it is at home */
	uint64_t sealed_tid; /* the highest sealed transaction: last_tid, or MERGED ones after it */
	/*
	 * Of last_tid: nothing at or after this position in the ring counts.
	 * One for each partition.
	 */
	uint64_t high[NVJ_MAX_PARTITIONS];
};

/*
 * As nvj_recover_with. On success (0) it also returns the resulting state.
 * recovered may be NULL. run may be NULL: then the partitions are recovered one
 * after the other. Errors as nvj_recover, and NVJ_ENOMEM.
 */
int nvj_recover_into(const struct nvj_region *region, const struct nvj_platform *platform,
		     nvj_run *run, struct nvj_report *report, struct nvj_recovered *recovered);

#endif
