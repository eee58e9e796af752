/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * nvjournal in user space: what a program passes to the engine (nvjournal.h).
 *
 * 	region		the memory: a DAX device or file, a plain file, DRAM
 * 	disk		the home of the blocks: a file or block device, or memory for tests
 * 	platform	waiting, memory, clock, and the disk, as struct nvj_platform
 * 	run, workers	threads
 * 	nvju_open	all of these together, from two paths
 *
 * Functions return 0 or a negative error: NVJ_E... or another -errno of Linux.
 * nvju_error() returns a text for users: what failed, for which file, why, and
 * what to do. Nothing here prints or exits.
 */
#ifndef NVJOURNAL_USER_H
#define NVJOURNAL_USER_H

#include "nvjournal.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The text for the last failure of an nvju_ function in this thread; "" if
 * there was none. Valid until the next failure in the thread.
 */
const char *nvju_error(void);

/* --- Regions ------------------------------------------------------------- */

struct nvju_region;

enum nvju_region_flags {
	/*
	 * Mapped read-only. Others may read it at the same time. nvj_format,
	 * nvj_recover and nvj_open return NVJ_EINVAL.
	 */
	NVJU_READ_ONLY = 1,
	/*
	 * If the file does not exist or is shorter than offset + size_bytes, it
	 * is extended with zeros. With size_bytes 0 no file is made.
	 */
	NVJU_CREATE = 2,
	/*
	 * Takes no lock: for reading a region that is in use. Only with
	 * NVJU_READ_ONLY.
	 */
	NVJU_UNLOCKED = 4,
	/*
	 * Allows a region where a commit may not survive a power failure, or is
	 * slow: see nvju_region_open. For development and tests.
	 */
	NVJ_ALLOW_VOLATILE = 8,
};

/*
 * Maps size_bytes at offset of a file or device; 0: to its end. Both are
 * multiples of 4096 (of 2 MiB on a DAX device). If the path can be mapped with
 * MAP_SYNC (device DAX, a file on a DAX file system), the processor's
 * instructions make stores persistent.
 *
 * Any other path is refused with -EOPNOTSUPP, unless it is opened read-only. So
 * is device DAX on virtio-pmem: its memory is the page cache of the host, and
 * only the host can flush it. NVJ_ALLOW_VOLATILE allows both. Without MAP_SYNC
 * each fence calls msync for the pages that its thread wrote. That is slow. It
 * is as durable as fsync of the file system, which on tmpfs is not durable at
 * all. If msync fails, it raises SIGBUS, as failing memory does.
 *
 * A block device of persistent memory (/dev/pmem0, where ext4nvj has its
 * journal) is accepted without the flag. It is never mapped with MAP_SYNC.
 * msync with the driver's flush makes it durable. nvj formats and recovers it
 * in this way.
 *
 * Recovery and check detect memory that cannot be read, such as that of a
 * truncated file. They return NVJ_EUCLEAN, and the report has the places
 * (unreadable). For this there is a handler of SIGBUS while a region is open.
 * It ends only the journal's own reads, in the thread that met the error. Any
 * other SIGBUS goes to the handler that was installed before the first region
 * was opened. A handler that the program installs later stays; then the program
 * itself must handle failing memory. Memory that fails during a write raises
 * SIGBUS for the program.
 *
 * The mapped part is locked (by fcntl) against other processes and against this
 * one: -EBUSY.
 */
int nvju_region_open(struct nvju_region **region, const char *path, uint64_t offset,
		     uint64_t size_bytes, unsigned flags);

/*
 * Memory that is slower than DRAM, emulated by busy waiting. 0: the speed of
 * DRAM, which papers 3 and 4 used.
 */
struct nvju_dram {
	uint64_t fence_ns;         /* wait in each fence */
	uint64_t line_ns;          /* wait for each written line */
	uint64_t bytes_per_second; /* limit for all threads together; the fence waits */
	const char *persistence;   /* as in nvj_persistence() */
};

/*
 * Anonymous memory, zeroed. It does not survive the process. model may be NULL.
 */
int nvju_region_dram(struct nvju_region **region, uint64_t size_bytes,
		     const struct nvju_dram *model);

/*
 * The argument for nvj_format, nvj_open and others. Valid until
 * nvju_region_close.
 */
const struct nvj_region *nvju_region(const struct nvju_region *region);

/*
 * How it is mapped, for display: "DAX (MAP_SYNC), clwb", "plain file, msync"...
 */
const char *nvju_region_how(const struct nvju_region *region);

/*
 * Unmaps and unlocks. NULL is allowed. A child that was forked while the region was open still
 * has it mapped, and must not use it. It does not keep a file locked if the process
 * that opened it closes it; a device remains in use until the child ends or executes another
 * program.
 */
void nvju_region_close(struct nvju_region *region);

/* --- Disks --------------------------------------------------------------- */

struct nvju_disk;

enum nvju_disk_flags {
	NVJU_DISK_READ_ONLY = 1,
	NVJU_DISK_CREATE = 2,   /* a file that does not exist is made */
	NVJU_DISK_BUFFERED = 4, /* through the page cache: no O_DIRECT */
	NVJU_DISK_NO_URING = 8, /* one write after the other, with pwrite */
};

/*
 * A file or block device. Block n is at byte 4096 n. A file grows as needed;
 * beyond its end it reads as zeros. A file that is opened to be written is
 * locked (by fcntl), and a device is opened exclusively: -EBUSY if another
 * process has it so, or if the device is mounted. It is written with O_DIRECT
 * where the file system supports it. Each queue is an io_uring with at most
 * NVJ_QUEUE_DEPTH writes in flight. Where io_uring is refused, pwrite is used.
 * It is flushed with fdatasync. When one flush has failed, all later flushes
 * fail.
 */
int nvju_disk_open(struct nvju_disk **disk, const char *path, unsigned flags);

/*
 * A disk in memory, for tests and measurements. At most channels writes run at
 * the same time, and each takes write_ns. 0 channels: no limit and no delay.
 */
struct nvju_disk_model {
	unsigned channels;
	uint64_t write_ns;
	uint64_t flush_ns;
	/*
	 * A crash loses some of the data written after the last flush:
	 * nvju_disk_crash.
	 */
	bool cached;
};

/* A memory disk of that many blocks, all zero. model may be NULL. */
int nvju_disk_memory(struct nvju_disk **disk, uint64_t blocks, const struct nvju_disk_model *model);

/* The bytes of a memory disk: block n is at 4096 n. */
void *nvju_disk_bytes(struct nvju_disk *disk);

/*
 * Faults of a memory disk. The next_write-th write from now on (1: the next
 * one) fails with NVJ_EIO. So does the read or flush with that number. If
 * forever is set, all later ones fail, too. 0: none.
 */
struct nvju_disk_faults {
	uint64_t next_write, next_read, next_flush;
	bool forever;
	/* A write that fails has written some of its 512-byte sectors. */
	bool torn;
};
void nvju_disk_fail(struct nvju_disk *disk, const struct nvju_disk_faults *faults);

/*
 * Simulates a power failure. Of the data that a cached memory disk received
 * since its last flush, each 512-byte sector is kept or lost, depending on the
 * seed. No write may be in flight.
 */
void nvju_disk_crash(struct nvju_disk *disk, uint64_t seed);

int nvju_disk_read(struct nvju_disk *disk, uint64_t block, void *image);
int nvju_disk_start_write(struct nvju_disk *disk, unsigned queue, struct nvj_write *write);
struct nvj_write *nvju_disk_finish_write(struct nvju_disk *disk, unsigned queue);
int nvju_disk_flush(struct nvju_disk *disk);

struct nvju_disk_counts {
	uint64_t reads, writes, flushes; /* ended, including failed ones */
	uint64_t errors;
};
struct nvju_disk_counts nvju_disk_counts(const struct nvju_disk *disk);

/*
 * For display: "io_uring, O_DIRECT", "io_uring, page cache (no O_DIRECT
 * here)"...
 */
const char *nvju_disk_how(const struct nvju_disk *disk);

/*
 * Waits for writes in flight, and closes the disk. It does not flush. NULL is
 * allowed. A child that was forked meanwhile does not keep a file locked if the process that
 * opened it closes it; a device remains in use until the child ends or executes another program.
 */
void nvju_disk_close(struct nvju_disk *disk);

/* --- The platform -------------------------------------------------------- */

/*
 * A struct nvj_platform for a disk. It is the context of its own functions. So
 * the caller's before_commit and aborted, which may be stored in platform, find
 * their own data in user.
 */
struct nvju_platform {
	struct nvj_platform platform;
	struct nvju_disk *disk;
	void *user;
};

/* disk may be NULL for nvj_check and nvj_walk, which use no disk. */
void nvju_platform_init(struct nvju_platform *platform, struct nvju_disk *disk);

/*
 * An nvj_run with as many threads as there are processors; context is not used.
 */
void nvju_run(void *context, unsigned count, void (*work)(void *argument, unsigned n),
	      void *argument);

/* A random UUID for nvj_format. */
void nvju_uuid(uint8_t uuid[16]);

/* --- Workers ------------------------------------------------------------- */

struct nvju_workers;

enum nvju_worker_flags {
	NVJU_CHECKPOINT_WORKERS = 1, /* nvj_options.workers must be set */
	NVJU_COMMIT_WORKERS = 2,
};

/* Starts one thread of each kind for each partition. */
int nvju_workers_start(struct nvju_workers **workers, struct nvj *journal, unsigned flags);

/* Ends them. Call it before nvj_close. NULL is allowed. */
void nvju_workers_stop(struct nvju_workers *workers);

/* --- All at once --------------------------------------------------------- */

struct nvju_options {
	uint64_t region_offset;
	uint64_t region_size_bytes; /* 0: to the end of the file or device */
	/*
	 * If not 0, and the region has no journal (its first 128 KiB are zeros,
	 * or there is no such file), a journal is made: region_size_bytes long,
	 * with that many partitions. A file with anything else keeps its length
	 * and content. -EEXIST: another journal includes region_offset, or begins
	 * in the region at a multiple of 64 KiB of the file. NVJ_EINVAL:
	 * region_offset is no such multiple, so others would not find the journal.
	 */
	unsigned create_partitions;
	unsigned region_flags;      /* NVJ_ALLOW_VOLATILE, or 0 */
	unsigned disk_flags;        /* enum nvju_disk_flags, but not NVJU_DISK_READ_ONLY */
	unsigned worker_flags;      /* enum nvju_worker_flags */
	struct nvj_options journal; /* nvju_open sets workers and recover_with */
	int (*before_commit)(void *context, uint64_t tid); /* context: struct nvju_platform */
	void (*aborted)(void *context, int error, uint64_t block);
	void *user;
};

/* An open journal with its region, disk and workers. */
struct nvju {
	struct nvj *journal;
	struct nvju_region *region;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	struct nvju_workers *workers;
	struct nvj_report report; /* the report of the recovery */
	bool created;             /* a new journal was made */
};

/*
 * Opens the journal in the region for the disk, and recovers it if necessary.
 * options may be NULL. The region and the disk must be two files. After
 * NVJ_EUCLEAN, nvju_error() names the first damage; nvj check shows all.
 */
int nvju_open(struct nvju **opened, const char *region, const char *disk,
	      const struct nvju_options *options);

/*
 * Ends the workers, calls nvj_close, and closes region and disk. NVJ_EBUSY
 * while handles are open: the journal stays open, without workers. After any
 * other error it is closed, and the region keeps what is not at home. NULL is
 * allowed.
 */
int nvju_close(struct nvju *opened);

/* The same with nvj_abandon: at once, like a crash. */
void nvju_abandon(struct nvju *opened);

/* Writes an English text for a finding, with its offset. Returns text. */
char *nvju_finding_text(const struct nvj_finding *finding, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
