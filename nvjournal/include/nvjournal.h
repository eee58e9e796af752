/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * nvjournal: a write-ahead journal in byte-addressable memory.
 *
 * The journal of a block layer copies whole blocks to a disk and waits.
 * nvjournal copies only the 64-byte lines that changed, into persistent memory.
 * Many threads do so at the same time without a common lock. A commit adds one
 * line. nvjournal follows two papers: Han, "Design and Evaluation of a
 * High-performance Journaling Scheme for Non-volatile Memory" (2020; one ring,
 * here P = 1), and Park, Lee, Han, "NVM-based Concurrent Journaling Scheme"
 * (2021; P rings, chosen by block number). docs/nvjournal.md lists what both
 * papers leave open, and gives the reason for each decision made here.
 *
 * nvjournal is not a file system, a cache or an allocator. It knows blocks of
 * 4096 bytes by their numbers, and writes changed blocks to a disk.
 *
 * How it is used, without the handling of errors:
 *
 * 	nvj_open(&journal, &region, &platform, &options, &report);
 * 	...
 * 	nvj_start(journal, &handle, 3 * NVJ_BLOCK_CREDITS);
 * 	nvj_access(&handle, 42, block);		before the first change
 * 	block[17] = 1;				the caller's own memory
 * 	nvj_log(&handle, 42, block, NVJ_COMPARE);	the change is in the journal
 * 	tid = nvj_stop(&handle);		all changes of a handle, or none
 * 	nvj_commit(journal, tid);		as fsync: now they survive a crash
 * 	...
 * 	nvj_close(journal);
 *
 * docs/nvjournal.md defines the terms: line, block, record, partition, ring,
 * handle, transaction, commit, checkpoint, revoke. A block is "at home" at its
 * own place on the disk. Integers in the region are little-endian.
 *
 * Errors are negative (NVJ_E...), as in Linux; 0 or more is success. No
 * function prints, exits or changes errno.
 */
#ifndef NVJOURNAL_H
#define NVJOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Sizes and limits ---------------------------------------------------- */

/* The unit of persistence: a processor writes a line to memory as one unit. */
#define NVJ_LINE_BYTES 64u
/* The unit of the disk. */
#define NVJ_BLOCK_BYTES 4096u
#define NVJ_BLOCK_LINES (NVJ_BLOCK_BYTES / NVJ_LINE_BYTES)
/*
 * The size of the largest record, in lines: a header and all lines of a block.
 */
#define NVJ_BLOCK_CREDITS (1u + NVJ_BLOCK_LINES)

#define NVJ_MAX_PARTITIONS 64u
/* Lines of one partition's ring. */
#define NVJ_MIN_RING_LINES 1024u
#define NVJ_MAX_RING_LINES (1u << 30)
/*
 * Records of the commit ring: one for each transaction that is not checkpointed
 * yet.
 */
#define NVJ_MIN_COMMITS 16u
#define NVJ_MAX_COMMITS 65536u
/* The highest transaction: 48 bits, some 17 years at 500,000 commits/s. */
#define NVJ_MAX_TID ((UINT64_C(1) << 48) - 1)

enum nvj_error {
	NVJ_EIO = -5,       /* the disk failed; or the journal was aborted by such a failure */
	NVJ_EAGAIN = -11,   /* it would have to wait for room or for a commit */
	NVJ_ENOMEM = -12,   /* the platform has no memory */
	NVJ_EBUSY = -16,    /* handles are open */
	NVJ_EINVAL = -22,   /* a parameter is out of its range */
	NVJ_ENOSPC = -28,   /* more credits than a ring can have, or than the handle has left */
	NVJ_EROFS = -30,    /* the journal was aborted: it accepts no changes */
	NVJ_ENODATA = -61,  /* there is no journal in the region */
	NVJ_EUCLEAN = -117, /* the region is damaged: see struct nvj_report */
	NVJ_EMEDIUM = -124, /* the journal belongs to another disk: its UUID differs */
	NVJ_EFORMAT = -95,  /* a format of a later version */
};

/* A short English text, without a full stop, for a negative error; never NULL. */
const char *nvj_strerror(int error);

/* --- The format ---------------------------------------------------------- */
/*
 * The layout of a region (all offsets in bytes):
 *
 * 	0			superblock, struct nvj_disk_super, in one block
 * 	4096			its copy
 * 	8192			tail word, struct nvj_disk_tail, in a line of its own
 * 	8256			its copy, in the next line
 * 	12288			commit ring: commits records of commit_lines lines
 * 	partition_offset	partition 0: ring_lines lines
 * 	... + ring_lines * 64	partition 1, and so on
 *
 * A position is the number of a line in a ring. It counts over all laps and
 * never wraps. The line is at position mod ring_lines, its lap is position /
 * ring_lines. Each partition starts at position 0. Lines are never cleared.
 *
 * CRCs are CRC-32C. They start with nvj_disk_super.seed, and are computed with
 * the CRC field as 0. The seed depends on the UUID, so data of an earlier
 * format of the same region are never valid.
 */

/* "NVJOURNL" */
#define NVJ_SUPER_MAGIC UINT64_C(0x4c4e52554f4a564e)
#define NVJ_FORMAT_VERSION 2u
/*
 * Recovery also accepts this version, and makes the newest version of it.
 */
#define NVJ_OLDEST_FORMAT_VERSION 1u

#define NVJ_SUPER_OFFSET 0u
#define NVJ_SUPER_COPY_OFFSET 4096u
#define NVJ_TAIL_OFFSET 8192u
#define NVJ_TAIL_COPY_OFFSET 8256u
#define NVJ_COMMITS_OFFSET 12288u

/*
 * Written at format and never changed. 128 bytes; the rest of its block is 0.
 */
struct nvj_disk_super {
	uint64_t magic;            /*  0 NVJ_SUPER_MAGIC */
	uint32_t version;          /*  8 NVJ_FORMAT_VERSION */
	uint32_t crc;              /* 12 of these 128 bytes, starts with ~0 and not with the seed */
	uint8_t uuid[16];          /* 16 of this journal, new at each format */
	uint8_t disk_uuid[16];     /* 32 of the disk it belongs to; 0: of none in particular */
	uint64_t size_bytes;       /* 48 of the region, to the end of the last partition */
	uint64_t partition_offset; /* 56 of partition 0 */
	uint64_t ring_lines;       /* 64 of each partition */
	uint32_t partitions;       /* 72 1..64 */
	uint32_t commits;          /* 76 records of the commit ring */
	uint32_t commit_lines;     /* 80 lines of each: nvj_commit_lines(partitions) */
	uint32_t block_bytes;      /* 84 NVJ_BLOCK_BYTES */
	uint32_t seed;             /* 88 start value of CRCs */
	uint32_t placement;        /* 92 enum nvj_placement; version 1: 0 */
	uint64_t formatted_unix;   /* 96 seconds, for display */
	uint8_t reserved[24];      /* 104 */
};

/*
 * The newest transaction whose blocks are all at home. One store of 8 bytes
 * moves it, in each copy. Bits 0..47 are the transaction, bits 48..63 the low
 * half of the CRC-32C of the first 6 bytes. The tail is a lower bound, so the
 * older of the two copies is also correct.
 */
struct nvj_disk_tail {
	uint64_t word;
	uint8_t unused[56];
};

/* Which ring a record goes to. */
enum nvj_placement {
	NVJ_PLACE_BLOCK = 1, /* of its block: block mod partitions, as in paper 4 */
	NVJ_PLACE_CPU = 2,   /* of the processor that writes it */
};

/* The kind of a slot of the commit ring. */
enum nvj_commit_kind {
	/* All records of the transaction are in the rings, and count. */
	NVJ_COMMIT = 1,
	/*
	 * The transaction counts if and only if the next one does (see
	 * nvj_commit).
	 */
	NVJ_MERGED = 2,
	/*
	 * Written at format, and at each open after recovery. Records before
	 * its positions count only if they were committed before.
	 */
	NVJ_ANCHOR = 3,
};

/*
 * Slot tid mod commits of the commit ring: commit_orders[] of paper 3, Fig. 3,
 * and, because it contains a position of each ring, commit_ts[] of paper 4,
 * Fig. 3.
 *
 * The seal is stored last, with one store of 8 bytes, after a fence that
 * follows the rest. Bits 0..31 are the CRC of the record with its seal as 0 and
 * all its lines. Bits 32..63 are the CRC-32C of tid (8 bytes). The states of a
 * slot are:
 * 	sealed		its seal is that of tid and matches the record
 * 	not yet		its seal is that of tid - commits, or 0 on the first lap
 * 	damaged		anything else: not the result of a crash, but of a bit error
 *
 * __extension__: C++ has no array like at[], but its compilers do.
 */
__extension__ struct nvj_disk_commit {
	uint64_t seal; /* 0 */
	uint64_t tid;  /* 8 */
	uint32_t kind; /* 16 enum nvj_commit_kind */
	uint32_t partitions;
	uint64_t time_ns; /* 24 for display: the clock of the platform */
	/*
	 * At 32, low and high for each partition. All records of later
	 * transactions are at low or after it. All records of this transaction
	 * and of earlier ones are before high. Each record before high is
	 * whole, whatever its transaction.
	 */
	struct {
		uint64_t low, high;
	} at[];
};

/* Lines of a commit record: 1 for 2 partitions or fewer, 3 for 8. */
static inline uint32_t nvj_commit_lines(uint32_t partitions)
{
	return (32u + 16u * partitions + NVJ_LINE_BYTES - 1) / NVJ_LINE_BYTES;
}

enum nvj_record_kind {
	NVJ_UPDATE = 1, /* metadata: lines of a block */
	NVJ_DATA = 2,   /* file data that are logged in the journal (nvj_log_data) */
	NVJ_REVOKE = 3, /* no record of the block before this one is replayed */
};

#define NVJ_RECORD_MAGIC 0x524a564eu /* "NVJR" */

/*
 * A record: this line, then one line for each bit of mask that is not in zeros,
 * in the order of the bits. A record may continue at the start of the ring.
 */
struct nvj_disk_record {
	uint32_t magic;    /*  0 NVJ_RECORD_MAGIC */
	uint32_t crc;      /*  4 of header and lines */
	uint64_t position; /*  8 of this line: a record of an earlier lap has another */
	uint64_t tid;      /* 16 */
	uint64_t block;    /* 24 its number */
	uint64_t mask;     /* 32 bit n: bytes 64n..64n+63 of the block changed */
	uint64_t zeros;    /* 40 of these, lines that are 0 and are not stored */
	uint16_t kind;     /* 48 enum nvj_record_kind */
	uint16_t lines;    /* 50 of the record, including this one: 1..65 */
	uint32_t unused32; /* 52 */
	/*
	 * Higher than those of all earlier records of the block. Records of a
	 * block are in any order in the rings, but have the order of this
	 * number. Version 1: 0, and the order is that of the ring.
	 */
	uint64_t sequence; /* 56 */
};

#define NVJ_MARK_MAGIC UINT64_C(0x4b52414d4c41544e) /* "NTALMARK" */

/*
 * A mark of the tail on the disk, at a place that the owner of the disk
 * chooses. It is written after the tail has moved. So the tail of the region is
 * never older than the mark. The tail of an older copy of the region may be.
 */
struct nvj_disk_mark {
	uint64_t magic;    /*  0 NVJ_MARK_MAGIC */
	uint32_t crc;      /*  8 of these 64 bytes, starts with ~0 */
	uint32_t unused32; /* 12 */
	uint8_t uuid[16];  /* 16 of the journal */
	uint64_t tail_tid; /* 32 */
	uint8_t unused[24];
};

#ifndef __cplusplus
_Static_assert(sizeof(struct nvj_disk_mark) == NVJ_LINE_BYTES, "mark");
_Static_assert(sizeof(struct nvj_disk_super) == 128, "superblock");
_Static_assert(sizeof(struct nvj_disk_tail) == NVJ_LINE_BYTES, "tail");
_Static_assert(sizeof(struct nvj_disk_commit) == 32, "commit record");
_Static_assert(sizeof(struct nvj_disk_record) == NVJ_LINE_BYTES, "record");
#endif

/* --- The region ---------------------------------------------------------- */

/*
 * How stores become persistent. All stores to a region use such a table, which
 * is chosen once, when the region is opened. nvj_persistence() returns the best
 * table for the processor.
 */
struct nvj_persistence {
	const char *name;
	/*
	 * Copies whole lines to the region. They are persistent after the next
	 * fence of this thread. Copy and flush are one function, because
	 * non-temporal stores need no flush.
	 */
	void (*write)(const struct nvj_persistence *p, void *to, const void *from, size_t bytes);
	/*
	 * Stores 8 bytes at a multiple of 8, in one store; otherwise as write.
	 */
	void (*store64)(const struct nvj_persistence *p, uint64_t *to, uint64_t value);
	/* Returns when all that this thread wrote is persistent. */
	void (*fence)(const struct nvj_persistence *p);
	void *context;
};

/*
 * Memory that survives power failures, mapped by the caller at a multiple of
 * 64.
 */
struct nvj_region {
	void *base;
	uint64_t size_bytes;
	/* NULL: only functions that write nothing may use it, as nvj_check. */
	const struct nvj_persistence *persistence;
	/*
	 * Copies data out of the region during recovery, where the memory may
	 * fail. Returns 0, or NVJ_EIO if some of it cannot be read. NULL: plain
	 * loads, which then end the program or the kernel. When the journal is
	 * open, nothing is read from the region.
	 */
	int (*read)(void *to, const void *from, size_t bytes);
};

/*
 * Returns a table by its name: "nt" (non-temporal stores), "clwb",
 * "clflushopt", "clflush", "none" (memory that needs no flush), or the best one
 * for this processor if the name is NULL. Returns NULL if the name is unknown
 * or the processor does not support it.
 */
const struct nvj_persistence *nvj_persistence(const char *name);

/* --- The platform -------------------------------------------------------- */

/* A write of one block to the disk, and its result. */
struct nvj_write {
	uint64_t block;
	const void *image; /* NVJ_BLOCK_BYTES, 64-byte aligned, unchanged until it has ended */
	int error;         /* 0 or NVJ_EIO, once it has ended */
	void *owner;       /* used by the journal */
	void *platform;    /* used by the platform */
};

/*
 * The functions that the engine needs from its environment. Each gets context.
 * allocate_block, add_here, yield, alone, before_commit, tail_moved, aborted and
 * logged_later are optional.
 */
struct nvj_platform {
	void *context;
	/* Allocates zeroed memory at a multiple of 64. NULL: there is none. */
	void *(*allocate)(void *context, size_t bytes);
	/*
	 * Allocates NVJ_BLOCK_BYTES for a copy of a block, at a multiple of 64.
	 * The memory can have any content: the engine stores all of it before it
	 * reads it. release gets it, too. NULL: there is none.
	 */
	void *(*allocate_block)(void *context);
	void (*release)(void *context, void *memory, size_t bytes);
	/*
	 * Sleeps while *word == expected, until it is woken or, unless it is 0,
	 * timeout_ns have passed. It may return early. As a futex of Linux.
	 */
	void (*wait)(void *context, const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
	/* Wakes all threads that wait at the word. */
	void (*wake)(void *context, const uint32_t *word);
	/*
	 * Returns the processor of this thread, as an approximation. Any number
	 * is allowed.
	 */
	unsigned (*cpu)(void *context);
	/*
	 * Adds to a word, if this thread is on the processor that cpu returned.
	 * Only this function adds to the word. So a plain addition is enough if
	 * the thread is not moved to another processor during it. Earlier
	 * stores of this thread become visible before the addition. False: the
	 * thread is on another processor, and nothing was added. NULL: the
	 * engine uses only atomic instructions.
	 */
	bool (*add_here)(void *context, unsigned cpu, uint64_t *word, uint64_t value);
	/*
	 * Yields the processor to another thread, if one is ready, and returns
	 * soon. A thread that waits for another thread's commit calls it before
	 * it sleeps. NULL: it does not yield.
	 */
	void (*yield)(void *context);
	/*
	 * Says whether no other thread is ready to run on this processor. Then a
	 * thread that waits for another one checks for some microseconds longer
	 * before it sleeps, and calls this again and again. NULL: none does.
	 */
	bool (*alone)(void *context);
	/* A monotonic clock, in nanoseconds. */
	uint64_t (*now_ns)(void *context);
	/*
	 * Reads a block from its home, during recovery. Returns 0 or NVJ_EIO.
	 */
	int (*read)(void *context, uint64_t block, void *image);
	/*
	 * Starts a write to a block's home. The number of a partition is also
	 * the number of its queue. nvj_bring_home uses one more queue, whose
	 * number is the number of partitions. A queue has at most
	 * NVJ_QUEUE_DEPTH writes, all of one thread at a time, which also calls
	 * finish_write. Returns 0, or NVJ_EIO if the write was not started.
	 */
	int (*start_write)(void *context, unsigned queue, struct nvj_write *write);
	/* Waits until one of the queue's writes has ended, and returns it. */
	struct nvj_write *(*finish_write)(void *context, unsigned queue);
	/*
	 * Returns when all writes that have ended are persistent on the disk. 0
	 * or NVJ_EIO.
	 */
	int (*flush)(void *context);
	/*
	 * For ordered mode. The committing thread calls it before it writes the
	 * commit record, when no handle of transaction tid, or of the
	 * transactions merged with it, is open. It returns when their data are
	 * persistent on the disk. After an error the journal aborts.
	 */
	int (*before_commit)(void *context, uint64_t tid);
	/*
	 * Called when a checkpoint has moved the tail to transaction tid. The
	 * new tail is persistent in the region, and the space that it frees is
	 * not reused yet. The thread that ends the round calls it: one call at
	 * a time, with rising numbers. NULL: no call.
	 */
	void (*tail_moved)(void *context, uint64_t tid);
	/*
	 * Called once when the journal aborts, with the error and the block, or
	 * ~0 without one.
	 */
	void (*aborted)(void *context, int error, uint64_t block);
	/*
	 * Called when a change is logged that was passed to nvj_log_later: by
	 * the thread that logs it, with a lock. lines: of the record; 0: nothing
	 * had changed. NULL: no call.
	 */
	void (*logged_later)(void *context, uint64_t tid, uint64_t block, uint32_t lines);
};

#define NVJ_QUEUE_DEPTH 32u
#define NVJ_MAX_QUEUES (NVJ_MAX_PARTITIONS + 1u)

/* --- Format, check, recover ---------------------------------------------- */

#define NVJ_USUAL_PARTITION_BYTES (UINT64_C(8) << 20)

/*
 * The number of partitions if the user gives none: one for each processor of the
 * machine, but at most one for NVJ_USUAL_PARTITION_BYTES of the region, and at
 * least one. docs/nvjournal.md explains the bound.
 */
static inline uint32_t nvj_usual_partitions(uint64_t size_bytes, uint32_t processors)
{
	uint64_t most = size_bytes / NVJ_USUAL_PARTITION_BYTES;

	if (most > NVJ_MAX_PARTITIONS)
		most = NVJ_MAX_PARTITIONS;
	if (most > processors)
		most = processors;
	return most ? (uint32_t)most : 1;
}

struct nvj_format_options {
	uint32_t partitions; /* 1..64; 0: 1 */
	/*
	 * A power of two; 0: one for 4 KiB of the region, 16..65536, but above 4096
	 * at most a 32nd of the region.
	 */
	uint32_t commits;
	uint8_t uuid[16];      /* must not be 0: random */
	uint8_t disk_uuid[16]; /* 0: any disk */
	uint64_t now_unix;
	enum nvj_placement placement; /* 0: NVJ_PLACE_CPU */
};

/*
 * Makes an empty journal of the whole region. Its previous contents are lost.
 * NVJ_ENOSPC: the region is too small for the partitions. NVJ_EINVAL.
 */
int nvj_format(const struct nvj_region *region, const struct nvj_format_options *options);

/*
 * Reads the superblock from a sound copy. NVJ_ENODATA, NVJ_EFORMAT,
 * NVJ_EUCLEAN.
 */
int nvj_read_super(const struct nvj_region *region, struct nvj_disk_super *super);

/*
 * Reads the tail from the sound copies. Errors as nvj_read_super; NVJ_EUCLEAN:
 * both are damaged.
 */
int nvj_read_tail(const struct nvj_region *region, uint64_t *tid);

/* Fills in a mark of the journal with this UUID. */
void nvj_mark_make(struct nvj_disk_mark *mark, const uint8_t uuid[16], uint64_t tail_tid);
/*
 * Returns the tail in the mark. 0: it is no mark, it is damaged, or it belongs
 * to another journal.
 */
uint64_t nvj_mark_tail(const struct nvj_disk_mark *mark, const uint8_t uuid[16]);

/* The kinds of damage. */
enum nvj_finding_kind {
	NVJ_FOUND_SUPER = 1, /* one copy of the superblock is damaged; the other is used */
	NVJ_FOUND_TAIL,      /* one copy of the tail is damaged; the other is used */
	NVJ_FOUND_TAILS,     /* both are damaged: the journal is unusable */
	NVJ_FOUND_COMMIT,    /* a record of the commit ring is damaged */
	NVJ_FOUND_RECORD,    /* a record of a partition is damaged, before the last commit */
	NVJ_FOUND_LAYOUT,    /* impossible sizes in the superblock */
	NVJ_FOUND_SUPERS,    /* no copy of the superblock is sound: the journal is unusable */
};

struct nvj_finding {
	enum nvj_finding_kind kind;
	uint32_t partition; /* of NVJ_FOUND_RECORD */
	uint64_t position; /* of NVJ_FOUND_RECORD: its line; of NVJ_FOUND_COMMIT: the transaction */
	uint64_t offset;   /* in the region, bytes */
	bool unreadable;   /* the memory there fails (struct nvj_region, read) */
};

#define NVJ_MAX_FINDINGS 16u

/* The result of nvj_check, nvj_recover and nvj_open. */
struct nvj_report {
	uint64_t tail_tid;      /* at home */
	uint64_t committed_tid; /* the last committed transaction */
	uint64_t transactions;  /* committed, not yet at home */
	uint64_t records;       /* of these, that were or would be replayed */
	uint64_t revoked;       /* not replayed because of a revoke; 0 after an error */
	uint64_t uncommitted;   /* records of transactions that did not commit: skipped */
	uint64_t blocks;        /* written home */
	uint64_t journal_bytes; /* read */
	uint32_t findings;      /* the number of findings; the first NVJ_MAX_FINDINGS are kept */
	bool clean;             /* nothing to replay */
	struct nvj_finding finding[NVJ_MAX_FINDINGS];
};

/*
 * Reads all that recovery would read, and changes nothing. 0: sound.
 * NVJ_EUCLEAN: see the report.
 */
int nvj_check(const struct nvj_region *region, const struct nvj_platform *platform,
	      struct nvj_report *report);

/*
 * Writes all committed blocks home. Everything is checked first. If anything in
 * the committed part is damaged, nothing is written (NVJ_EUCLEAN). Memory that
 * fails only after it was checked is also NVJ_EUCLEAN, with blocks in the report
 * if some were written. The tail does not move then, and a later recovery writes
 * them again. Other errors are those of nvj_read_super, NVJ_EIO of the disk,
 * NVJ_ENOMEM, and NVJ_EINVAL if the region has no persistence. After a crash
 * during recovery, call it again. Partitions are independent: nvj_recover_with
 * recovers them in parallel if the platform passes it run (below).
 */
int nvj_recover(const struct nvj_region *region, const struct nvj_platform *platform,
		struct nvj_report *report);

/*
 * Calls work(argument, n) for each n less than count, in parallel or one after
 * the other, and returns after all of them.
 */
typedef void nvj_run(void *context, unsigned count, void (*work)(void *argument, unsigned n),
		     void *argument);
int nvj_recover_with(const struct nvj_region *region, const struct nvj_platform *platform,
		     nvj_run *run, struct nvj_report *report);

/*
 * Calls visit for each sound record between the tail and the last commit,
 * partition by partition in the order of the ring. If visit returns a value
 * other than 0, it stops and returns that value. lines has the packed payload
 * of the record. For nvj dump.
 */
typedef int nvj_visit(void *context, uint32_t partition, const struct nvj_disk_record *record,
		      const void *lines, bool committed);
int nvj_walk(const struct nvj_region *region, const struct nvj_platform *platform, nvj_visit *visit,
	     void *context);

/* --- An open journal ----------------------------------------------------- */

struct nvj;

struct nvj_options {
	uint8_t disk_uuid[16]; /* must be the journal's, unless either is 0 */
	nvj_run *recover_with; /* NULL: partitions are recovered one after the other */
	/*
	 * A checkpoint starts when a ring, or the commit ring, is full by this
	 * percentage, 1..100; 0: 50. Handles wait when a ring is nearly full,
	 * and commits when the commit ring is full.
	 */
	unsigned checkpoint_percent;
	/*
	 * The caller runs nvj_checkpoint_worker in a thread for each partition.
	 * Otherwise the thread that finds the journal full runs the checkpoint.
	 */
	bool workers;
};

/*
 * Opens the journal of a region. It recovers the journal if necessary, and
 * writes an anchor. The caller ensures that a region is open only once. The
 * region's memory, platform and persistence must exist until nvj_close. The
 * structures are copied. options and report may be NULL. Errors as
 * nvj_recover; NVJ_EMEDIUM; NVJ_EINVAL: checkpoint_percent is above 100;
 * NVJ_ENOSPC: all transactions up to NVJ_MAX_TID are used.
 */
int nvj_open(struct nvj **journal, const struct nvj_region *region,
	     const struct nvj_platform *platform, const struct nvj_options *options,
	     struct nvj_report *report);

/*
 * Commits, writes everything home and closes. Then the region is clean.
 * NVJ_EBUSY while handles are open or credits are reserved: nothing was done.
 * After any other error the journal is closed, and the region keeps what is not
 * at home.
 */
int nvj_close(struct nvj *journal);

/* Closes at once, like a crash: for tests, and after an abort. */
void nvj_abandon(struct nvj *journal);

/* --- Handles ------------------------------------------------------------- */

#define NVJ_HANDLE_BLOCKS 8u
/* Lines of the records that a handle keeps. It writes all of them together. */
#define NVJ_HANDLE_LINES 32u

/*
 * One operation: either all its changes survive a crash, or none. The structure
 * is in the caller's memory, is used by one thread at a time, and does not
 * move. Its fields are private to the journal. 2.3 KiB.
 */
struct nvj_handle {
	struct nvj *journal;
	uint64_t tid;
	uint32_t credits; /* lines that it may still log */
	uint32_t taken;   /* lines that were reserved for it */
	unsigned cpu;
	uint32_t placed; /* reservations in rings, not yet flagged */
	uint32_t kept_lines;
	uint32_t later;         /* credits that it has left to pending blocks */
	struct nvj_block *last; /* the block that it accessed last, or NULL */
	uint32_t partition[NVJ_HANDLE_BLOCKS];
	uint64_t position[NVJ_HANDLE_BLOCKS];
	uint64_t kept[(NVJ_HANDLE_LINES + 1) * (NVJ_LINE_BYTES / 8)];
};

/*
 * Starts an operation that logs at most credits lines. A record takes one line
 * and one line for each changed line, at most NVJ_BLOCK_CREDITS. If the journal
 * is full, this function waits; later functions never wait for room.
 * NVJ_ENOSPC: more than nvj_max_credits(). NVJ_EROFS. A thread may have only
 * one open handle.
 */
int nvj_start(struct nvj *journal, struct nvj_handle *handle, uint32_t credits);

/* The same, for a caller that knows what the function cpu of the platform returns. */
int nvj_start_on(struct nvj *journal, struct nvj_handle *handle, uint32_t credits, unsigned cpu);

/*
 * Says whether a handle is open. A handle that is about to start, or has just ended, may
 * or may not be counted.
 */
bool nvj_handles_open(const struct nvj *journal);

/* The most credits that a handle can have: a quarter of a ring. */
uint32_t nvj_max_credits(const struct nvj *journal);

/*
 * Adds credits if there are any without waiting; otherwise NVJ_EAGAIN.
 * NVJ_ENOSPC: the handle would have more than nvj_max_credits(). NVJ_EROFS.
 */
int nvj_extend(struct nvj_handle *handle, uint32_t credits);

/*
 * Credits that remain after their handle has ended. They are for an operation
 * that will certainly follow and then must not wait, because before_commit may
 * be waiting for it. An example is the end of a write of file data, which needs
 * a handle of its own. The structure is in the caller's memory and does not
 * move. Its fields are private to the journal.
 */
struct nvj_reserved {
	struct nvj *journal;
	uint32_t credits;
	unsigned cpu;
};

/*
 * Takes credits that the handle has left. The handle was started with that many
 * more, in one nvj_start. So no thread waits for credits while it keeps credits
 * from others. Reserved credits belong to no transaction. It never waits.
 * NVJ_ENOSPC: the handle does not have that many left, and nothing was taken.
 */
int nvj_reserve(struct nvj_handle *handle, struct nvj_reserved *reserved, uint32_t credits);

/*
 * As nvj_start, but with the reserved credits, in the transaction that is
 * appropriate at that time. The reservation is then used up. It does not wait
 * for room, credits, a commit or a handle. Any thread without an open handle
 * may call it. NVJ_EROFS: the reservation is used up, too.
 */
int nvj_start_reserved(struct nvj_reserved *reserved, struct nvj_handle *handle);

/* Releases the reservation. Any thread may call it. */
void nvj_unreserve(struct nvj_reserved *reserved);

/*
 * Announces a change of the block; image has its 4096 bytes before the change.
 * Necessary once for each handle and block. It allocates all memory that
 * nvj_log may need. NVJ_ENOMEM, NVJ_EROFS: the block must not be changed.
 * NVJ_EINVAL: there is no block ~0.
 *
 * image may be NULL: the caller's memory may have been changed without the
 * journal, so it does not show the content at home. Then nvj_log compares with
 * the version that it logged last. If that version is at home already, it logs
 * all lines, as after nvj_create.
 */
int nvj_access(struct nvj_handle *handle, uint64_t block, const void *image);

/*
 * The same for a new block: its content at home is not valid, so all its lines
 * will be logged (lines of zeros take no space).
 */
int nvj_create(struct nvj_handle *handle, uint64_t block);

/*
 * With this mask nvj_log finds the changed lines by comparison with the last
 * logged image.
 */
#define NVJ_COMPARE UINT64_C(0)
#define NVJ_ALL_LINES (~UINT64_C(0))

/*
 * Logs a change of the block; image has its bytes after the change. Bit n of
 * mask stands for bytes 64n..64n+63. The mask must contain all changed lines;
 * more are harmless. Or mask is NVJ_COMPARE. When the function returns, the
 * change is in the journal, and the memory may change again. The record is in
 * the region and persistent when the handle stops, or earlier. Returns 0 if
 * nothing has changed, else the number of lines of the record. NVJ_ENOSPC: more
 * than the handle's credits. NVJ_EINVAL: the handle has not accessed the block.
 * NVJ_EROFS. Two threads may log the same block only in an order that the
 * caller ensures (its lock of the block, or different lines by mask).
 */
int nvj_log(struct nvj_handle *handle, uint64_t block, const void *image, uint64_t mask);

/* The same for file data, which are counted separately. */
int nvj_log_data(struct nvj_handle *handle, uint64_t block, const void *image, uint64_t mask);

/*
 * As nvj_log with NVJ_COMPARE, but the record may be written later: when the
 * transaction commits, or before a handle of a later transaction gets access to
 * the block. It then has all changes of its transaction. So a block that many
 * handles change is logged once. Until the transaction is committed, the memory
 * must stay, and only handles that have accessed the block change it. Returns
 * more than 0 if the record will be written later. It is written at once if the
 * handle has fewer than NVJ_BLOCK_CREDITS credits left, or if too much waits
 * already.
 */
int nvj_log_later(struct nvj_handle *handle, uint64_t block, const void *image);

/*
 * How much may wait in nvj_log_later, in lines; NVJ_BLOCK_CREDITS for each
 * block. nvj_max_credits is so much less. Once, before the first handle.
 * NVJ_EINVAL: more than half of nvj_max_credits. Without this call nothing
 * waits.
 */
int nvj_allow_later(struct nvj *journal, uint32_t lines);
/* Says whether three quarters of that wait. A commit logs all of it. */
bool nvj_much_waits(const struct nvj *journal);

/*
 * Says that the handle's changes may depend on what a handle of transaction
 * tid, later than its own, has done. The engine notices if both change the same
 * block, but not if one reads elsewhere what the other has stored. Then the
 * transactions commit together, as if both had changed a block. A handle of tid
 * must have started.
 */
void nvj_merge(struct nvj_handle *handle, uint64_t tid);

/*
 * Says that the block is freed. When this transaction is committed, neither
 * checkpoint nor recovery writes earlier logged versions of it. It takes one
 * line. After that commit the caller may use the block for something else.
 * Returns 0 or more, or errors as nvj_access and nvj_log.
 */
int nvj_revoke(struct nvj_handle *handle, uint64_t block);

/*
 * Ends the operation. Returns its transaction, for nvj_commit. If nothing was
 * logged in that transaction yet, returns the one before.
 */
uint64_t nvj_stop(struct nvj_handle *handle);

/* --- Commit and checkpoint ----------------------------------------------- */

/*
 * Returns when transaction tid is committed. No other thread is needed: the
 * caller closes and commits the transaction, or waits for a thread that does.
 * Handles of the next transaction continue meanwhile. If an open handle of a
 * transaction accesses a block that the next transaction has changed, both
 * commit together (NVJ_MERGED): no handle waits in the middle of its operation.
 * tid 0: all handles that were stopped before. If nothing was logged since the
 * last commit, it returns 0 at once, and nvj_committed() does not change. If tid is
 * not 0, and handles of it are open, it first waits for them, and closes it.
 * NVJ_EINVAL: tid is later than nvj_running(); nothing was done. NVJ_EIO,
 * NVJ_EROFS: the transaction may survive or not. Must not be called with an
 * open handle.
 */
int nvj_commit(struct nvj *journal, uint64_t tid);

/* The last committed transaction. */
uint64_t nvj_committed(const struct nvj *journal);

/*
 * The transaction that operations join now. Operations that were stopped before are in
 * it or in an earlier one. before_commit of it, and of a later one, is not called yet.
 */
uint64_t nvj_running(const struct nvj *journal);

/*
 * The newest transaction that is at home, together with all before it: at most
 * nvj_committed().
 */
uint64_t nvj_tail(const struct nvj *journal);

/* Writes everything home that is committed now, and moves the tail. */
int nvj_checkpoint(struct nvj *journal);

/*
 * Writes the committed versions of these blocks home, without a checkpoint of
 * all other blocks. With flush, it also flushes the disk's cache. It is for a
 * caller that will read these blocks from the disk, or write them itself. Such
 * a caller must do the following before it writes: it revokes the blocks,
 * because otherwise recovery would replay logged versions over its writes; it
 * flushes the disk, here or in before_commit, before the revokes are committed;
 * and the revokes are committed before the caller reports its own writes as
 * persistent. NVJ_EAGAIN: an uncommitted change of one of the blocks was
 * logged; the others may be at home or not. NVJ_EIO, NVJ_EROFS. Must not be
 * called with an open handle.
 */
int nvj_bring_home(struct nvj *journal, const uint64_t *blocks, unsigned count, bool flush);

/* The checkpoint thread of a partition. It returns after nvj_stop_workers. */
void nvj_checkpoint_worker(struct nvj *journal, unsigned partition);

/*
 * The commit worker of a partition (paper 4, Fig. 3): it follows the flags and
 * moves last_check forward, so that a committing thread has fewer flags to
 * check. It is optional: the committer checks.
 */
void nvj_commit_worker(struct nvj *journal, unsigned partition);

void nvj_stop_workers(struct nvj *journal);

/*
 * Frees memory: at most that many images (copies of blocks, NVJ_BLOCK_BYTES
 * each) of blocks that are at home and that no open handle uses. Returns how
 * many it freed. It examines at most twice as many blocks; *scanned is their
 * number. It waits for no lock, and skips blocks that are in use. 0 with
 * *scanned 0: there is none, or all are in use.
 */
uint64_t nvj_shrink(struct nvj *journal, uint64_t images, uint64_t *scanned);
/* How many images have memory now. */
uint64_t nvj_images(const struct nvj *journal);

/*
 * Copies the last logged version of the block into image. A reader that finds
 * the block here must not use the content at home. False: the block is at home.
 */
bool nvj_peek(struct nvj *journal, uint64_t block, void *image);

/* The error with which the journal was aborted; 0: it was not aborted. */
int nvj_aborted(const struct nvj *journal);
/* Stops all changes. What is committed stays in the region. */
void nvj_abort(struct nvj *journal, int error);

/* The locks of the engine, by what they protect. */
enum nvj_lock_kind {
	NVJ_LOCK_BLOCK,  /* a block */
	NVJ_LOCK_BUCKET, /* a chain of the table of blocks */
	NVJ_LOCK_LISTS,  /* the lists of a partition */
	NVJ_LOCK_OTHER,  /* the search for credits, and nvj_bring_home */
	NVJ_LOCK_KINDS,
};

struct nvj_statistics {
	uint64_t handles;
	uint64_t transactions;   /* committed */
	uint64_t merged;         /* of these, merged with the next one */
	uint64_t commits_waited; /* calls of nvj_commit that another thread's commit completed */
	uint64_t records;
	uint64_t record_lines; /* including headers */
	uint64_t zero_lines;   /* lines of zeros, which are not written */
	uint64_t data_records;
	uint64_t revokes;
	uint64_t fences;      /* of record, commit and tail */
	uint64_t start_waits; /* handles that waited for room */
	uint64_t start_wait_ns;
	uint64_t frozen; /* images that were frozen because a later transaction changed them */
	uint64_t checkpoints;
	uint64_t blocks_home; /* written by checkpoint */
	uint64_t running_tid, committed_tid, tail_tid;
	uint64_t used_lines; /* of the fullest ring */
	uint64_t ring_lines;
	uint32_t partitions;
	/* How often a thread found a lock taken, and how long it waited. */
	uint64_t lock_waits[NVJ_LOCK_KINDS];
	uint64_t lock_wait_ns[NVJ_LOCK_KINDS];
	/*
	 * How often a lock was taken, how long it was held, and the longest of these
	 * times since the previous call. 0 unless the engine was built with
	 * NVJ_LOCK_TIMES, because this takes time.
	 */
	uint64_t lock_holds[NVJ_LOCK_KINDS];
	uint64_t lock_hold_ns[NVJ_LOCK_KINDS];
	uint64_t lock_longest_ns[NVJ_LOCK_KINDS];
};

void nvj_statistics(const struct nvj *journal, struct nvj_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
