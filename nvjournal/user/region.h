/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common parts of regions: region.c maps them; region_file.c and region_dram.c
 * make stores persistent.
 */
#ifndef NVJU_REGION_H
#define NVJU_REGION_H

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/types.h>

#include "nvjournal_user.h"

struct nvju_region {
	struct nvj_region region;
	struct nvj_persistence persistence; /* used if the processor's own table is not used */
	int fd;                             /* -1: none */
	pid_t opener; /* the process that has locked it: a forked child must not unlock it */
	int claim_fd; /* -1: none; for a block device: the claim against other users */
	bool read_only;
	bool device;  /* a block device, with a page cache */
	bool catches; /* counted by region_read.c */
	char how[96];
	/* region_dram.c */
	struct nvju_dram model;
	const struct nvj_persistence *under;
	double ns_per_byte;
	uint64_t free_at_ns; /* when the emulated memory will have accepted all written data */
};

/*
 * region.c: says that two paths lead to one file. A disk that is the region would overwrite
 * the journal with blocks.
 */
bool nvju_same_file(const char *region, const char *disk);

/* region.c: a file before it was opened with NVJU_CREATE. */
struct nvju_file_before {
	bool existed;
	struct stat status;
};
void nvju_note_file(struct nvju_file_before *before, const char *path);
/*
 * Removes the file again if it is new, or gives it the length that it had: no journal
 * was made in it. end: of the region.
 */
void nvju_restore_file(const struct nvju_file_before *before, const char *path, uint64_t end);

/* region_durable.c: what sysfs says about the memory of a device. */
/*
 * A block device of persistent memory, or a device that consists of such
 * devices, or a part of one.
 */
bool nvju_is_pmem_block(dev_t device);
/* Device DAX whose memory only the host can flush. */
bool nvju_needs_host_flush(dev_t device);

/*
 * region_claim.c: claims the range of the block device for this region until
 * claim_fd is closed. A region that is only read is not claimed: -EBUSY if the
 * range is in use now.
 */
int nvju_claim(struct nvju_region *region, const char *path, dev_t device, uint64_t offset,
	       uint64_t size);

/*
 * region_read.c: reads of the region return errors until the region is
 * released.
 */
void nvju_catch_bus_errors(struct nvju_region *region);
void nvju_release_bus_errors(struct nvju_region *region);
/* Returns 0, or NVJ_EIO: the memory failed (SIGBUS). */
int nvju_read_memory(void *to, const void *from, size_t bytes);

/* Makes the region persistent with msync. */
void nvju_region_use_msync(struct nvju_region *region);

#endif
