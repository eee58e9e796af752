/* SPDX-License-Identifier: Apache-2.0 */
/* What regions share: region.c maps them, region_file.c and region_dram.c persist them. */
#ifndef NVJU_REGION_H
#define NVJU_REGION_H

#include "nvjournal_user.h"

struct nvju_region {
	struct nvj_region region;
	struct nvj_persistence persistence; /* unless the processor's own is used as it is */
	int fd;                             /* -1: none */
	bool read_only;
	bool device; /* a block device, with a page cache */
	char how[96];
	/* region_dram.c */
	struct nvju_dram model;
	const struct nvj_persistence *under;
	double ns_per_byte;
	uint64_t free_at_ns; /* when the emulated memory has taken all that was written */
};

/* Makes the region's persistence one of msync. */
void nvju_region_use_msync(struct nvju_region *region);

#endif
