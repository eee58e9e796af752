/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * nvjournal in user space: what a program hands to the engine (nvjournal.h).
 *
 *	region		the memory: a DAX device or file, a plain file, DRAM
 *	disk		the blocks' home: a file or block device, or memory for tests
 *	platform	waiting, memory, clock, and the disk, as struct nvj_platform
 *	run, workers	threads
 *	nvju_open	all of these at once, for two paths
 *
 * Functions return 0 or a negative error: NVJ_E... or another -errno of Linux.
 * nvju_error() has the sentence for people: what was wanted, on what, what
 * happened, what to do. Nothing here prints or exits.
 */
#ifndef NVJOURNAL_USER_H
#define NVJOURNAL_USER_H

#include "nvjournal.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The last failure of an nvju_ function in this thread, as a sentence; "" if
 * there was none. Valid until the thread's next failure.
 */
const char *nvju_error(void);

/* --- Regions ------------------------------------------------------------- */

struct nvju_region;

enum nvju_region_flags {
	/* Mapped so that nobody can change it; others may read it, too. */
	NVJU_READ_ONLY = 1,
	/*
	 * A file that does not exist, or is shorter than offset + size_bytes, is
	 * made that long, of zeros.
	 */
	NVJU_CREATE = 2,
	/* No lock: for a look at a region that is in use. Only with NVJU_READ_ONLY. */
	NVJU_UNLOCKED = 4,
	/*
	 * Also where a commit is not known to survive a loss of power, or is slow: see
	 * nvju_region_open. For development and tests.
	 */
	NVJ_ALLOW_VOLATILE = 8,
};

/*
 * Maps size_bytes at offset of a file or device; 0: to its end. Both multiples
 * of 4096 (of 2 MiB on a DAX device). Where the path can be mapped with MAP_SYNC
 * (device DAX, a file on a DAX file system) stores are made persistent by the
 * processor's instructions.
 *
 * Anything else is refused, unless it is opened to be read: -EOPNOTSUPP. So is device
 * DAX on virtio-pmem, whose memory is the host's page cache: it needs a flush by the
 * host, which no instruction makes. With NVJ_ALLOW_VOLATILE both are taken. Without
 * MAP_SYNC each fence then calls msync for the pages that its thread wrote: slow, and as
 * durable as the file system's fsync, which on tmpfs is not at all. A failing msync
 * raises SIGBUS, as failing memory does.
 *
 * A block device of persistent memory (/dev/pmem0: where ext4nvj has its journal) is
 * taken without the flag: it is never mapped with MAP_SYNC, and msync with the
 * driver's flush makes it durable. nvj formats and recovers it so.
 *
 * Recovery and check find memory that cannot be read, as a region's of a file that
 * was cut: they return NVJ_EUCLEAN, and the report says where (unreadable). For that
 * there is a handler of SIGBUS while a region is open. It only ends our own reading in
 * the thread that met the error; any other SIGBUS goes to the handler that was there
 * before the first region was opened. A handler that the program sets afterwards
 * stays, and then failing memory is its own. Memory that fails while it is written
 * raises SIGBUS for the program.
 *
 * The part mapped is locked (by fcntl) against other processes and against this
 * one: -EBUSY.
 */
int nvju_region_open(struct nvju_region **region, const char *path, uint64_t offset,
		     uint64_t size_bytes, unsigned flags);

/* Memory that is slower than DRAM, by busy waiting. 0: as DRAM is, which papers 3 and 4 took. */
struct nvju_dram {
	uint64_t fence_ns;         /* waited in each fence */
	uint64_t line_ns;          /* waited for each line written */
	uint64_t bytes_per_second; /* of all threads together; waited for in the fence */
	const char *persistence;   /* as in nvj_persistence() */
};

/* Anonymous memory, zeroed; it does not survive the process. model may be NULL. */
int nvju_region_dram(struct nvju_region **region, uint64_t size_bytes,
		     const struct nvju_dram *model);

/* What nvj_format, nvj_open... take. Valid until nvju_region_close. */
const struct nvj_region *nvju_region(const struct nvju_region *region);

/* How it is mapped, for people: "DAX (MAP_SYNC), clwb", "plain file, msync"... */
const char *nvju_region_how(const struct nvju_region *region);

/* Unmaps and unlocks. NULL is allowed. */
void nvju_region_close(struct nvju_region *region);

/* --- Disks --------------------------------------------------------------- */

struct nvju_disk;

enum nvju_disk_flags {
	NVJU_DISK_READ_ONLY = 1,
	NVJU_DISK_CREATE = 2,   /* a file that does not exist is made */
	NVJU_DISK_BUFFERED = 4, /* through the page cache: no O_DIRECT */
	NVJU_DISK_NO_URING = 8, /* one write after the other, by pwrite */
};

/*
 * A file or block device. Block n is at byte 4096 n; a file grows as needed, and
 * reads as zeros behind its end. Written with O_DIRECT where the file system has
 * it, by one io_uring for each queue with up to NVJ_QUEUE_DEPTH writes in
 * flight; by pwrite where io_uring is refused. Flushed with fdatasync; once that
 * has failed, it fails for good.
 */
int nvju_disk_open(struct nvju_disk **disk, const char *path, unsigned flags);

/*
 * A disk in memory, for tests and measurements. channels writes run at a time,
 * each takes write_ns; 0 channels: no limit, at once.
 */
struct nvju_disk_model {
	unsigned channels;
	uint64_t write_ns;
	uint64_t flush_ns;
	/* A crash loses some of what was written after the last flush: nvju_disk_crash. */
	bool cached;
};

/* blocks of zeros. model may be NULL. */
int nvju_disk_memory(struct nvju_disk **disk, uint64_t blocks, const struct nvju_disk_model *model);

/* Its bytes: block n at 4096 n. Only of a memory disk. */
void *nvju_disk_bytes(struct nvju_disk *disk);

/*
 * Faults of a memory disk. The next_write-th write from now (1: the next one),
 * read or flush fails with NVJ_EIO, and so do all after it if forever is set;
 * 0: none.
 */
struct nvju_disk_faults {
	uint64_t next_write, next_read, next_flush;
	bool forever;
	/* A write that fails has written some of its sectors of 512 bytes. */
	bool torn;
};
void nvju_disk_fail(struct nvju_disk *disk, const struct nvju_disk_faults *faults);

/*
 * The power fails: of what a cached memory disk took since its last flush, each
 * sector of 512 bytes is kept or lost, by the seed. No write may be in flight.
 */
void nvju_disk_crash(struct nvju_disk *disk, uint64_t seed);

int nvju_disk_read(struct nvju_disk *disk, uint64_t block, void *image);
int nvju_disk_start_write(struct nvju_disk *disk, unsigned queue, struct nvj_write *write);
struct nvj_write *nvju_disk_finish_write(struct nvju_disk *disk, unsigned queue);
int nvju_disk_flush(struct nvju_disk *disk);

struct nvju_disk_counts {
	uint64_t reads, writes, flushes; /* ended, also those that failed */
	uint64_t errors;
};
struct nvju_disk_counts nvju_disk_counts(const struct nvju_disk *disk);

/* For people: "io_uring, O_DIRECT", "io_uring, page cache (no O_DIRECT here)"... */
const char *nvju_disk_how(const struct nvju_disk *disk);

/* Waits for writes in flight and closes. Does not flush. NULL is allowed. */
void nvju_disk_close(struct nvju_disk *disk);

/* --- The platform -------------------------------------------------------- */

/*
 * A struct nvj_platform for a disk. It is the context of its own functions, so
 * the caller's before_commit and aborted, which may be put into platform, find
 * what they need at user.
 */
struct nvju_platform {
	struct nvj_platform platform;
	struct nvju_disk *disk;
	void *user;
};

/* disk may be NULL for nvj_check and nvj_walk: they touch none. */
void nvju_platform_init(struct nvju_platform *platform, struct nvju_disk *disk);

/* An nvj_run: in as many threads as there are processors; context is not used. */
void nvju_run(void *context, unsigned count, void (*work)(void *argument, unsigned n),
	      void *argument);

/* A random UUID, as nvj_format wants it. */
void nvju_uuid(uint8_t uuid[16]);

/* --- Workers ------------------------------------------------------------- */

struct nvju_workers;

enum nvju_worker_flags {
	NVJU_CHECKPOINT_WORKERS = 1, /* nvj_options.workers must be set */
	NVJU_COMMIT_WORKERS = 2,
};

/* Starts a thread of each kind for each partition. */
int nvju_workers_start(struct nvju_workers **workers, struct nvj *journal, unsigned flags);

/* Ends them; before nvj_close. NULL is allowed. */
void nvju_workers_stop(struct nvju_workers *workers);

/* --- All at once --------------------------------------------------------- */

struct nvju_options {
	uint64_t region_offset;
	uint64_t region_size_bytes; /* 0: to the end */
	/*
	 * Not 0: if the region holds no journal (its first 12 KiB are zeros, or
	 * there is no such file) one is made, region_size_bytes long, with so
	 * many partitions.
	 */
	unsigned create_partitions;
	unsigned region_flags;      /* NVJ_ALLOW_VOLATILE, or 0 */
	unsigned disk_flags;        /* enum nvju_disk_flags */
	unsigned worker_flags;      /* enum nvju_worker_flags */
	struct nvj_options journal; /* workers and recover_with are set by nvju_open */
	int (*before_commit)(void *context, uint64_t tid); /* context: struct nvju_platform */
	void (*aborted)(void *context, int error, uint64_t block);
	void *user;
};

/* An open journal with all that it stands on. */
struct nvju {
	struct nvj *journal;
	struct nvju_region *region;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	struct nvju_workers *workers;
	struct nvj_report report; /* of the recovery */
	bool created;             /* a new journal was made */
};

/*
 * Opens the journal in the region for the disk; recovers it if need be. options
 * may be NULL. On NVJ_EUCLEAN nvju_error() names the first damage; nvj check
 * shows all.
 */
int nvju_open(struct nvju **opened, const char *region, const char *disk,
	      const struct nvju_options *options);

/*
 * Ends the workers, nvj_close, and closes everything under it. NVJ_EBUSY while
 * handles are open: it stays open, without workers. On another error it is
 * closed all the same, and the region keeps what is not at home. NULL is allowed.
 */
int nvju_close(struct nvju *opened);

/* The same with nvj_abandon: at once, as a crash would. */
void nvju_abandon(struct nvju *opened);

/* An English text for a finding, with its offset. Returns text. */
char *nvju_finding_text(const struct nvj_finding *finding, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
