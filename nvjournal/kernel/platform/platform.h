/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the engine (nvjournal/core) stands on in Linux:
 *
 *	region.c	slices of persistent memory, mapped by DAX
 *	claims.c	slices that programs use, and who uses which
 *	media.c		memory that fails
 *	persist.c	stores to a region, counted
 *	disk.c		a file system's block device as the engine's platform
 *	disk_io.c	its writes and flushes by bio; disk_cache.c those of recovery
 *	disk_mark.c	the mark of the journal's tail on it
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
#include <linux/seq_file.h>
#include <linux/types.h>

#include "../../include/nvjournal.h"

/* --- Regions -------------------------------------------------------------- */

/* An open slice of persistent memory. */
struct nvjk_region;

/*
 * Opens bytes [offset, offset + size) of the pmem block device at path. offset and
 * size are multiples of 4096, and size is not 0. Several slices of one device may
 * be open at a time, here and for other mounts, if no two overlap; the device is
 * opened exclusively, so only those who claim a slice (claims.c) write to it meanwhile.
 * user says who uses it, as "the mount of vda". name is that of the disk, for messages;
 * NULL: none. -EINVAL: not so aligned, or beyond the end; -EBUSY: overlaps, or the
 * device is in use by others; -EOPNOTSUPP: no DAX; -ENOTBLK and what opening a path may
 * give.
 * Not under sb->s_umount of a mount on the same device.
 */
#define NVJK_USER_BYTES 64
int nvjk_region_open(struct nvjk_region **region, const char *path, u64 offset, u64 size,
		     const char *user, const char *name);
/* NULL is nothing. No journal may be open in it. */
void nvjk_region_close(struct nvjk_region *region);

/* For nvj_open, nvj_format, nvj_read_super and so on, until it is closed. */
const struct nvj_region *nvjk_region(const struct nvjk_region *region);
/* Whether what is fenced there is persistent. If not (virtio-pmem), it needs a flush by others. */
bool nvjk_region_is_synchronous(const struct nvjk_region *region);
/* A line for each open slice: device, its number, offset and size in bytes, user. */
void nvjk_regions_show(struct seq_file *seq);
/* The pmem device's name, as pmem0, and the slice's first byte. */
const char *nvjk_region_device(const struct nvjk_region *region);
u64 nvjk_region_offset(const struct nvjk_region *region);

/*
 * /proc/fs/ext4nvj/regions, whose directory must be there. It reads as nvjk_regions_show
 * has it. Who writes "OFFSET SIZE PATH" to it has that slice of the pmem device at PATH,
 * in bytes, until the file is closed: no mount takes it meanwhile. One for each open
 * file; for CAP_SYS_ADMIN. Errors are those of nvjk_region_open; -EBUSY also for a second
 * one. -ENOMEM.
 */
int nvjk_claims_init(void);
/* Ends all claims, too. */
void nvjk_claims_exit(void);

/*
 * Called when the kernel says that memory of the region fails, or that its device
 * goes: with the first byte of it in the region. It may be called by any thread,
 * until it is set to NULL, and must not open or close a region. If it was said since the
 * region was opened, it is called at once.
 */
void nvjk_region_on_failure(struct nvjk_region *region, void (*failed)(void *context, u64 offset),
			    void *context);
/* Whether the device has bad blocks in the region; *bad: the first one's place in it. */
bool nvjk_region_is_bad(const struct nvjk_region *region, u64 *bad);

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

/*
 * From now on each checkpoint writes a mark of the journal's tail (struct
 * nvj_disk_mark) to that block, which is nobody else's. The write is not flushed: a
 * power failure may leave an older mark, which is right, too. One that fails is
 * counted among the errors; the first is logged. -ENOMEM.
 */
int nvjk_disk_mark_at(struct nvjk_disk *disk, u64 block, const u8 uuid[16]);
/*
 * The tail that the mark at that block names, past the buffer cache; *tid is 0 if
 * there is none of the journal with that UUID. -EIO, -EINVAL: beyond the end.
 */
int nvjk_disk_read_mark(struct nvjk_disk *disk, u64 block, const u8 uuid[16], u64 *tid);

/* Flushes are empty: the barrier mount option is off. May change at any time. */
void nvjk_disk_no_flush(struct nvjk_disk *disk, bool no_flush);

/* Writes of blocks that have ended, since it was opened, whether they failed or not. */
u64 nvjk_disk_writes_ended(const struct nvjk_disk *disk);

struct nvjk_disk_counts {
	u64 reads;   /* blocks, at recovery */
	u64 writes;  /* blocks */
	u64 flushes; /* that were asked of the device, of checkpoints */
	u64 marks;   /* of the tail, besides the writes */
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
