/* SPDX-License-Identifier: Apache-2.0 */
/* What regions share: region.c maps them, region_file.c and region_dram.c persist them. */
#ifndef NVJU_REGION_H
#define NVJU_REGION_H

#include <sys/types.h>

#include "nvjournal_user.h"

struct nvju_region {
	struct nvj_region region;
	struct nvj_persistence persistence; /* unless the processor's own is used as it is */
	int fd;                             /* -1: none */
	int claim_fd;                       /* -1: none; of a block device: others keep off */
	bool read_only;
	bool device;  /* a block device, with a page cache */
	bool catches; /* counted by region_read.c */
	char how[96];
	/* region_dram.c */
	struct nvju_dram model;
	const struct nvj_persistence *under;
	double ns_per_byte;
	uint64_t free_at_ns; /* when the emulated memory has taken all that was written */
};

/* region_durable.c: what a device that is not mapped, or is, says of its memory. */
/* A block device of persistent memory, or one that is made of such, or a part of it. */
bool nvju_is_pmem_block(dev_t device);
/* Device DAX whose memory needs a flush by the host. */
bool nvju_needs_host_flush(dev_t device);

/*
 * region_claim.c: the range of the block device is this region's alone until claim_fd is
 * closed. A region that is only read is not claimed: -EBUSY if the range is in use now.
 */
int nvju_claim(struct nvju_region *region, const char *path, dev_t device, uint64_t offset,
	       uint64_t size);

/* region_read.c: from here on, and until it is released, the region is read so. */
void nvju_catch_bus_errors(struct nvju_region *region);
void nvju_release_bus_errors(struct nvju_region *region);
/* 0; NVJ_EIO: memory failed (SIGBUS). */
int nvju_read_memory(void *to, const void *from, size_t bytes);

/* Makes the region's persistence one of msync. */
void nvju_region_use_msync(struct nvju_region *region);

#endif
