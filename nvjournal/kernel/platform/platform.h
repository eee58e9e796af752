/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the engine (nvjournal/core) stands on in Linux:
 *
 *	region.c	slices of persistent memory, mapped by DAX
 *	persist.c	stores to a region, counted
 *	disk.c		a file system's block device as the engine's platform
 *	disk_io.c	its writes and flushes by bio; disk_cache.c those of recovery
 *	memory.c	memory, at a multiple of 64
 *	wait.c		wait, wake and clock
 *	workers.c	checkpoint threads
 *
 * It knows nothing of ext4 or of jbd2's interface. Functions return 0 or a
 * negative errno (the engine's errors are the same numbers); what a person can
 * mend is said by pr_err, too, as "EXT4NVJ-fs (NAME): ...".
 * All may sleep, and none may be called from an interrupt.
 */
#ifndef NVJK_PLATFORM_H
#define NVJK_PLATFORM_H

#include <linux/blkdev.h>
#include <linux/types.h>

#include "../../include/nvjournal.h"

/* --- Regions -------------------------------------------------------------- */

/* An open slice of persistent memory. */
struct nvjk_region;

/*
 * Opens bytes [offset, offset + size) of the pmem block device at path. offset and
 * size are multiples of 4096, and size is not 0. Several slices of one device may
 * be open at a time, here and for other mounts, if no two overlap; the device is
 * opened exclusively, so nobody else writes to it meanwhile. name is that of the
 * disk, for messages. -EINVAL: not so aligned, or beyond the end; -EBUSY: overlaps,
 * or the device is in use by others; -EOPNOTSUPP: no DAX; -ENOTBLK and what opening
 * a path may give.
 * Not under sb->s_umount of a mount on the same device.
 */
int nvjk_region_open(struct nvjk_region **region, const char *path, u64 offset, u64 size,
		     const char *name);
/* NULL is nothing. No journal may be open in it. */
void nvjk_region_close(struct nvjk_region *region);

/* For nvj_open, nvj_format, nvj_read_super and so on, until it is closed. */
const struct nvj_region *nvjk_region(const struct nvjk_region *region);
/* The pmem device's name, as pmem0, and the slice's first byte. */
const char *nvjk_region_device(const struct nvjk_region *region);
u64 nvjk_region_offset(const struct nvjk_region *region);

/* Of a region since it was opened; each number is a sum over processors, taken one by one. */
struct nvjk_persist_counts {
	u64 writes; /* calls that write and flush: a run of lines, or 8 bytes */
	u64 lines;  /* that these wrote: 64 bytes each; a store of 8 bytes counts as one */
	u64 fences;
};
void nvjk_region_counts(const struct nvjk_region *region, struct nvjk_persist_counts *counts);

/* --- A disk --------------------------------------------------------------- */

/* A file system's block device, for one journal. */
struct nvjk_disk;

/* What the journal's owner is asked. Each gets context. NULL: not asked. */
struct nvjk_disk_hooks {
	void *context;
	int (*before_commit)(void *context, u64 tid); /* as in struct nvj_platform */
	void (*aborted)(void *context, int error, u64 block);
};

/*
 * bdev stays its owner's, and open, until nvjk_disk_close; its block size
 * (set_blocksize) is 4096. It begins in recovery mode. hooks may be NULL. -EINVAL,
 * -ENOMEM.
 */
int nvjk_disk_open(struct nvjk_disk **disk, struct block_device *bdev,
		   const struct nvjk_disk_hooks *hooks);
/* NULL is nothing. The journal must be closed: then no write is under way. */
void nvjk_disk_close(struct nvjk_disk *disk);

/* For nvj_open; it may be copied, and lives as long as the disk. */
const struct nvj_platform *nvjk_disk_platform(const struct nvjk_disk *disk);

/*
 * In recovery mode blocks are read and written through the device's buffer
 * cache, so that who has buffers of it sees what was recovered; flush writes them
 * out. Once nvj_open has returned, and the owner has read what may have changed,
 * it must be ended, and stays so: from then on writes go by bio, past the cache.
 */
void nvjk_disk_end_recovery(struct nvjk_disk *disk);

/* Flushes are empty: the barrier mount option is off. May change at any time. */
void nvjk_disk_no_flush(struct nvjk_disk *disk, bool no_flush);

struct nvjk_disk_counts {
	u64 reads;   /* blocks, at recovery */
	u64 writes;  /* blocks */
	u64 flushes; /* that were asked of the device, of checkpoints */
	u64 errors;  /* reads, writes and flushes that failed */
};
void nvjk_disk_counts(const struct nvjk_disk *disk, struct nvjk_disk_counts *counts);

/* --- Workers -------------------------------------------------------------- */

/* The checkpoint threads of an open journal, one for each partition. */
struct nvjk_workers;

/* name: as in the threads' names, nvj/NAME:N. The journal was opened with options.workers. */
int nvjk_workers_start(struct nvjk_workers **workers, struct nvj *journal, unsigned int partitions,
		       const char *name);
/* Before nvj_close or nvj_abandon; returns when all have ended. NULL is nothing. */
void nvjk_workers_stop(struct nvjk_workers *workers);

/* --- Recovery ------------------------------------------------------------- */

/* An nvj_run for options.recover_with: a work item of an unbound queue for each. */
void nvjk_run(void *context, unsigned int count, void (*work)(void *argument, unsigned int n),
	      void *argument);

#endif
