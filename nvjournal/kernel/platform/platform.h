/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The platform of the engine (nvjournal/core) in the Linux kernel:
 *
 * 	region.c	slices of persistent memory, mapped by DAX
 * 	claims.c	slices that programs use, and the list of users
 * 	media.c		memory that fails
 * 	persist.c	stores to a region, with counters
 * 	disk.c		a file system's block device as the engine's platform
 * 	disk_io.c	its writes and flushes by bio; disk_cache.c: those of recovery
 * 	disk_mark.c	the mark of the journal's tail on the disk
 * 	memory.c	memory, at a multiple of 64
 * 	wait.c		wait, wake and clock
 * 	workers.c	checkpoint threads
 *
 * It does not know which file system uses it. Functions return 0 or a negative
 * errno (the engine's errors have the same numbers). Errors that an
 * administrator can repair are also logged by pr_err, as "LABEL (NAME): ...";
 * LABEL is EXT4NVJ-fs or JFSNVJ-fs. All functions may sleep, and none may be
 * called from an interrupt.
 */
#ifndef NVJK_PLATFORM_H
#define NVJK_PLATFORM_H

#include <linux/blkdev.h>
#include <linux/seq_file.h>
#include <linux/stringify.h>
#include <linux/types.h>

#include "../../include/nvjournal.h"

/* Begins each message. Kbuild defines NVJK_LABEL. */
#define NVJK_LABEL_TEXT __stringify(NVJK_LABEL)

/* --- Regions -------------------------------------------------------------- */

/* An open slice of persistent memory. */
struct nvjk_region;

/*
 * Opens bytes [offset, offset + size) of the pmem block device at path. offset
 * and size are multiples of 4096, and size is not 0. Several slices of one
 * device may be open at the same time, here and for other mounts, if they do
 * not overlap. The device is opened exclusively, so meanwhile only programs
 * that claim a slice (claims.c) write to it. user describes the user, such as
 * "the mount of vda". name is that of the disk, for messages; NULL: none.
 * -EINVAL: not aligned, or beyond the end; -EBUSY: overlaps, or others use the
 * device; -EOPNOTSUPP: no DAX; -ENOTBLK and the errors of opening a path. Must
 * not be called under sb->s_umount of a mount on the same device.
 */
#define NVJK_USER_BYTES 64
int nvjk_region_open(struct nvjk_region **region, const char *path, u64 offset, u64 size,
		     const char *user, const char *name);
/* NULL is allowed. No journal may be open in it. */
void nvjk_region_close(struct nvjk_region *region);

/*
 * The argument for nvj_open, nvj_format, nvj_read_super and others, until the
 * region is closed.
 */
const struct nvj_region *nvjk_region(const struct nvjk_region *region);
/*
 * Says whether fenced stores are persistent. If not (virtio-pmem), the host
 * must flush them.
 */
bool nvjk_region_is_synchronous(const struct nvjk_region *region);
/*
 * Prints a line for each open slice: device, its number, offset and size in
 * bytes, user.
 */
void nvjk_regions_show(struct seq_file *seq);
/*
 * The name of the pmem device, such as pmem0, and the offset of the slice in
 * bytes.
 */
const char *nvjk_region_device(const struct nvjk_region *region);
u64 nvjk_region_offset(const struct nvjk_region *region);

/*
 * Creates /proc/fs/MODULE/regions; its directory must exist. Reading it gives
 * the output of nvjk_regions_show. Writing "OFFSET SIZE PATH", in bytes, claims
 * that slice of the pmem device at PATH until the file is closed: no mount can
 * use it meanwhile. One claim per open file; only with CAP_SYS_ADMIN. Errors
 * are those of nvjk_region_open; -EBUSY also for a second claim. -ENOMEM.
 */
int nvjk_claims_init(void);
/* Also ends all claims. */
void nvjk_claims_exit(void);

/*
 * Sets the function to call when the kernel reports that memory of the region
 * fails, or that its device is removed. Its argument is the first such byte in
 * the region. Any thread may call it, until it is set to NULL. It must not open
 * or close a region. If there was a report since the region was opened, it is
 * called at once.
 */
void nvjk_region_on_failure(struct nvjk_region *region, void (*failed)(void *context, u64 offset),
			    void *context);
/*
 * Says whether the device has bad blocks in the region; *bad: the offset of the
 * first one in it.
 */
bool nvjk_region_is_bad(const struct nvjk_region *region, u64 *bad);

/*
 * Counters of a region since it was opened. Each is a sum over processors,
 * which are read one after the other.
 */
struct nvjk_persist_counts {
	u64 writes; /* calls that write and flush: a run of lines, or 8 bytes */
	u64 lines;  /* that these wrote: 64 bytes each; a store of 8 bytes counts as one */
	u64 fences;
};
void nvjk_region_counts(const struct nvjk_region *region, struct nvjk_persist_counts *counts);

/* --- A disk --------------------------------------------------------------- */

/* A file system's block device, for one journal. */
struct nvjk_disk;

/* Calls to the owner of the journal. Each gets context. NULL: no call. */
struct nvjk_disk_hooks {
	void *context;
	int (*before_commit)(void *context, u64 tid); /* as in struct nvj_platform */
	void (*aborted)(void *context, int error, u64 block);
	/* The bio, which is complete, will be submitted to write the block home. */
	void (*writes)(void *context, u64 block, struct bio *bio);
	void (*logged_later)(void *context, u64 tid, u64 block, u32 lines); /* as there */
};

/*
 * Drops the kernel's cache of a block device. The journal writes past it, so it has older or
 * uncommitted content if a program keeps the device open or mapped. Call it before anything
 * holds a buffer of the device. -EBUSY: a program writes to some of it; the rest is dropped.
 */
int nvjk_disk_drop_cache(struct block_device *bdev);

/*
 * Opens a disk in recovery mode. bdev belongs to its owner, and stays open
 * until nvjk_disk_close; its block size (set_blocksize) is 4096. hooks may be
 * NULL. -EINVAL, -ENOMEM.
 */
int nvjk_disk_open(struct nvjk_disk **disk, struct block_device *bdev,
		   const struct nvjk_disk_hooks *hooks);
/* NULL is allowed. The journal must be closed: then no write is in progress. */
void nvjk_disk_close(struct nvjk_disk *disk);

/* For nvj_open. It may be copied, and is valid as long as the disk. */
const struct nvj_platform *nvjk_disk_platform(const struct nvjk_disk *disk);

/*
 * Ends recovery mode. In recovery mode blocks are read and written through the
 * device's buffer cache, so that existing buffers have the recovered content; a
 * flush writes them to the disk. Call this once, after nvj_open has returned
 * and the owner has read again what may have changed. From then on writes are
 * bios, without the cache.
 */
void nvjk_disk_end_recovery(struct nvjk_disk *disk);

/*
 * From now on each checkpoint writes a mark of the journal's tail (struct
 * nvj_disk_mark) to that block, which must not be used otherwise. The write is
 * not flushed: after a power failure an older mark may be there, which is also
 * correct. A failed write is counted as an error; the first one is logged.
 * -ENOMEM.
 */
int nvjk_disk_mark_at(struct nvjk_disk *disk, u64 block, const u8 uuid[16]);
/* The mark has another place from now on. No checkpoint is running. */
void nvjk_disk_move_mark(struct nvjk_disk *disk, u64 block);
/* Reads a block of the disk, without the buffer cache. -EIO, -ENOMEM. */
int nvjk_disk_read_home(struct nvjk_disk *disk, u64 block, void *image);
/*
 * While it is held, the journal must write no block home: an attempt fails, and
 * aborts the journal.
 */
void nvjk_disk_hold(struct nvjk_disk *disk, bool held);
/*
 * Reads the tail from the mark in that block, without the buffer cache. *tid is
 * 0 if there is no mark of the journal with that UUID. -EIO, -EINVAL: beyond
 * the end.
 */
int nvjk_disk_read_mark(struct nvjk_disk *disk, u64 block, const u8 uuid[16], u64 *tid);

/*
 * Makes flushes no-ops, because the mount option barrier is off. It may change
 * at any time.
 */
void nvjk_disk_no_flush(struct nvjk_disk *disk, bool no_flush);

/*
 * How many writes of blocks have ended since the disk was opened, including
 * failed ones.
 */
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

/*
 * name is used in the threads' names, nvj/NAME:N. The journal was opened with
 * options.workers.
 */
int nvjk_workers_start(struct nvjk_workers **workers, struct nvj *journal, unsigned int partitions,
		       const char *name);
/*
 * Call it before nvj_close or nvj_abandon. It returns when all have ended. NULL
 * is allowed.
 */
void nvjk_workers_stop(struct nvjk_workers *workers);

/* --- Recovery ------------------------------------------------------------- */

/*
 * An nvj_run for options.recover_with: one work item for each, in an unbound
 * queue.
 */
void nvjk_run(void *context, unsigned int count, void (*work)(void *argument, unsigned int n),
	      void *argument);

#endif
