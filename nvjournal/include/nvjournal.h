/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * nvjournal: a write-ahead journal in byte-addressable memory.
 *
 * A block layer's journal copies whole blocks to a disk and waits. This one
 * copies the 64-byte lines that changed into persistent memory, by any number
 * of threads at once and without a common lock, and a commit is one line more.
 * It follows two papers: Han, "Design and Evaluation of a High-performance
 * Journaling Scheme for Non-volatile Memory" (2020; one ring, here P = 1), and
 * Park, Lee, Han, "NVM-based Concurrent Journaling Scheme" (2021; P rings by
 * block number). What both leave open is decided here; docs/nvjournal.md argues
 * each decision.
 *
 * What it is not: a file system, a cache or an allocator. It knows blocks of
 * 4096 bytes by their number, and carries them, changed, to a disk.
 *
 * How it is used, without errors:
 *
 *	nvj_open(&journal, &region, &platform, &options, &report);
 *	...
 *	nvj_start(journal, &handle, 3 * NVJ_BLOCK_CREDITS);
 *	nvj_access(&handle, 42, block);		before the first change
 *	block[17] = 1;				the caller's own memory
 *	nvj_log(&handle, 42, block, NVJ_COMPARE);	the change is in the journal
 *	tid = nvj_stop(&handle);		all changes of a handle, or none
 *	nvj_commit(journal, tid);		as fsync: they survive a crash now
 *	...
 *	nvj_close(journal);
 *
 * Words: line, block, record, partition, ring, handle, transaction, commit,
 * checkpoint, revoke, as in docs/nvjournal.md. "At home" is a block's own place
 * on the disk. Integers in the region are little-endian.
 *
 * Errors are negative (NVJ_E...), as in Linux; 0 or more is success. No function
 * prints, exits or changes errno.
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

/* The unit of persistence: what the processor writes back to memory at once. */
#define NVJ_LINE_BYTES 64u
/* The unit of the disk. */
#define NVJ_BLOCK_BYTES 4096u
#define NVJ_BLOCK_LINES (NVJ_BLOCK_BYTES / NVJ_LINE_BYTES)
/* What the largest record takes: a header and all lines of a block. */
#define NVJ_BLOCK_CREDITS (1u + NVJ_BLOCK_LINES)

#define NVJ_MAX_PARTITIONS 64u
/* Lines of one partition's ring. */
#define NVJ_MIN_RING_LINES 1024u
#define NVJ_MAX_RING_LINES (1u << 30)
/* Records of the commit ring: transactions that may wait for checkpoint. */
#define NVJ_MIN_COMMITS 16u
#define NVJ_MAX_COMMITS 65536u
/* The highest transaction: 48 bits, some 17 years at 500,000 commits/s. */
#define NVJ_MAX_TID ((UINT64_C(1) << 48) - 1)

enum nvj_error {
	NVJ_EIO = -5,      /* the disk failed; or the journal was aborted by such a failure */
	NVJ_EAGAIN = -11,  /* not without waiting: for room, or for a commit */
	NVJ_ENOMEM = -12,  /* the platform has no memory */
	NVJ_EBUSY = -16,   /* handles are open */
	NVJ_EINVAL = -22,  /* a parameter is out of its range */
	NVJ_ENOSPC = -28,  /* more credits than a ring ever has; or more than the handle has left */
	NVJ_EROFS = -30,   /* the journal was aborted: it takes no more changes */
	NVJ_ENODATA = -61, /* there is no journal in the region */
	NVJ_EUCLEAN = -117, /* the region is damaged: see struct nvj_report */
	NVJ_EMEDIUM = -124, /* the journal belongs to another disk: its UUID differs */
	NVJ_EFORMAT = -95,  /* a format of a later version */
};

/* A short English text, without a full stop, for a negative error; never NULL. */
const char *nvj_strerror(int error);

/* --- The format ---------------------------------------------------------- */
/*
 * A region is, from its first byte (all offsets in bytes):
 *
 *	0			superblock, struct nvj_disk_super, in one block
 *	4096			its copy
 *	8192			tail word, struct nvj_disk_tail, in a line of its own
 *	8256			its copy, in the next line
 *	12288			commit ring: commits records of commit_lines lines
 *	partition_offset	partition 0: ring_lines lines
 *	... + ring_lines * 64	partition 1, and so on
 *
 * A position is a line's number in a ring, counted on over all laps: it never
 * wraps. Its place is position mod ring_lines, its lap position / ring_lines.
 * Each partition begins at position 0; no line is ever cleared.
 *
 * CRCs are CRC-32C, begun with nvj_disk_super.seed, computed with the CRC field
 * itself as 0. The seed is of the UUID, so nothing of an earlier format of the
 * same region is ever taken for valid.
 */

/* "NVJOURNL" */
#define NVJ_SUPER_MAGIC UINT64_C(0x4c4e52554f4a564e)
#define NVJ_FORMAT_VERSION 1u

#define NVJ_SUPER_OFFSET 0u
#define NVJ_SUPER_COPY_OFFSET 4096u
#define NVJ_TAIL_OFFSET 8192u
#define NVJ_TAIL_COPY_OFFSET 8256u
#define NVJ_COMMITS_OFFSET 12288u

/* Written at format, never again. 128 bytes; the rest of its block is 0. */
struct nvj_disk_super {
	uint64_t magic;            /*  0 NVJ_SUPER_MAGIC */
	uint32_t version;          /*  8 NVJ_FORMAT_VERSION */
	uint32_t crc;              /* 12 of these 128 bytes, begun with ~0 and not with the seed */
	uint8_t uuid[16];          /* 16 of this journal, new at each format */
	uint8_t disk_uuid[16];     /* 32 of the disk it belongs to; 0: of none in particular */
	uint64_t size_bytes;       /* 48 of the region, to the end of the last partition */
	uint64_t partition_offset; /* 56 of partition 0 */
	uint64_t ring_lines;       /* 64 of each partition */
	uint32_t partitions;       /* 72 1..64 */
	uint32_t commits;          /* 76 records of the commit ring */
	uint32_t commit_lines;     /* 80 lines of each: nvj_commit_lines(partitions) */
	uint32_t block_bytes;      /* 84 NVJ_BLOCK_BYTES */
	uint32_t seed;             /* 88 what CRCs begin with: CRC-32C of the UUID, begun with ~0 */
	uint32_t reserved32;       /* 92 */
	uint64_t formatted_unix;   /* 96 seconds, for people */
	uint8_t reserved[24];      /* 104 */
};

/*
 * The newest transaction all of whose blocks are at home. One store of 8 bytes
 * moves it, in each copy: bits 0..47 the transaction, 48..63 the low half of
 * the CRC-32C of the first 6 bytes. It is a lower bound: the older of the two
 * copies is right, too.
 */
struct nvj_disk_tail {
	uint64_t word;
	uint8_t unused[56];
};

/* What a slot of the commit ring says of its transaction. */
enum nvj_commit_kind {
	/* All its records are in the rings, and count. */
	NVJ_COMMIT = 1,
	/* It counts if and only if the transaction after it does (see nvj_commit). */
	NVJ_MERGED = 2,
	/*
	 * Written at format and at each open, after recovery: no record before
	 * its positions counts any more that is not committed already.
	 */
	NVJ_ANCHOR = 3,
};

/*
 * Slot tid mod commits of the commit ring: commit_orders[] of paper 3, Fig. 3,
 * and, as it holds a position of each ring, commit_ts[] of paper 4, Fig. 3.
 *
 * The seal is stored last, in one store of 8 bytes, after a fence behind the
 * rest: bits 0..31 the CRC of the record with seal and all lines, bits 32..63
 * the CRC-32C of tid (8 bytes). So a slot is
 *	sealed		its seal is that of tid and fits the record
 *	not yet		its seal is that of tid - commits, or 0 on the first lap
 *	damaged		anything else: a crash cannot make it, a flipped bit can
 */
struct nvj_disk_commit {
	uint64_t seal; /* 0 */
	uint64_t tid;  /* 8 */
	uint32_t kind; /* 16 enum nvj_commit_kind */
	uint32_t partitions;
	uint64_t time_ns; /* 24 for people: the platform's clock */
	/*
	 * At 32, for each partition, low and high: all records of later
	 * transactions lie at low or after it, all of this and earlier ones
	 * before high; and every record before high is whole, whosesoever it is.
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
	NVJ_DATA = 2,   /* file data, through the journal (nvj_log_data) */
	NVJ_REVOKE = 3, /* no record of the block before this one is replayed */
};

#define NVJ_RECORD_MAGIC 0x524a564eu /* "NVJR" */

/*
 * A record: this line, then one line for each bit of mask that is not in zeros,
 * in the order of the bits. It may go over the end of the ring.
 */
struct nvj_disk_record {
	uint32_t magic;    /*  0 NVJ_RECORD_MAGIC */
	uint32_t crc;      /*  4 of header and lines */
	uint64_t position; /*  8 of this line: a record of an earlier lap has another */
	uint64_t tid;      /* 16 */
	uint64_t block;    /* 24 its number; block mod partitions is this partition */
	uint64_t mask;     /* 32 bit n: bytes 64n..64n+63 of the block changed */
	uint64_t zeros;    /* 40 of these, lines that are 0 and have no line here */
	uint16_t kind;     /* 48 enum nvj_record_kind */
	uint16_t lines;    /* 50 of the record, this one included: 1..65 */
	uint8_t reserved[12];
};

#define NVJ_MARK_MAGIC UINT64_C(0x4b52414d4c41544e) /* "NTALMARK" */

/*
 * On the disk, in a place that its owner chooses: the tail of the disk's journal, as
 * it was after some checkpoint. It is written after the tail has moved, so the
 * region's tail is never behind it; that of an older copy of the region may be.
 */
struct nvj_disk_mark {
	uint64_t magic;    /*  0 NVJ_MARK_MAGIC */
	uint32_t crc;      /*  8 of these 64 bytes, begun with ~0 */
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
 * How stores become persistent. All stores to a region go through such a table,
 * which is chosen once, when the region is opened. nvj_persistence() chooses the
 * best that the processor has.
 */
struct nvj_persistence {
	const char *name;
	/*
	 * Copies whole lines to the region, and sees to it that they are
	 * persistent after the next fence of this thread: copy and flush in one,
	 * as non-temporal stores need no flush.
	 */
	void (*write)(const struct nvj_persistence *p, void *to, const void *from, size_t bytes);
	/* Stores 8 bytes, at a multiple of 8, at once; as above. */
	void (*store64)(const struct nvj_persistence *p, uint64_t *to, uint64_t value);
	/* What this thread wrote is persistent when it returns. */
	void (*fence)(const struct nvj_persistence *p);
	void *context;
};

/* Memory that survives: mapped by the caller, at a multiple of 64. */
struct nvj_region {
	void *base;
	uint64_t size_bytes;
	const struct nvj_persistence *persistence;
	/*
	 * Copies out of the region at recovery, where memory may fail: 0, or
	 * NVJ_EIO if some of it cannot be read. NULL: plain loads, which end the
	 * program or the kernel then. Nothing is read once the journal is open.
	 */
	int (*read)(void *to, const void *from, size_t bytes);
};

/*
 * By name: "nt" (non-temporal stores), "clwb", "clflushopt", "clflush", "none"
 * (memory that needs no flush); NULL: the best for this processor. NULL is
 * returned for a name that is not known or a processor that lacks it.
 */
const struct nvj_persistence *nvj_persistence(const char *name);

/* --- The platform -------------------------------------------------------- */

/* A write of one block to the disk, and what becomes of it. */
struct nvj_write {
	uint64_t block;
	const void *image; /* NVJ_BLOCK_BYTES, 64-byte aligned, unchanged until it has ended */
	int error;         /* 0 or NVJ_EIO, once it has ended */
	void *owner;       /* the journal's */
	void *platform;    /* the platform's */
};

/*
 * What the engine asks of the world. Each function gets context. All but
 * add_here, yield, before_commit and aborted are needed.
 */
struct nvj_platform {
	void *context;
	/* Memory at a multiple of 64, zeroed; NULL if there is none. */
	void *(*allocate)(void *context, size_t bytes);
	void (*release)(void *context, void *memory, size_t bytes);
	/*
	 * Sleeps while *word == expected, until woken or, unless it is 0,
	 * timeout_ns have passed. May return early. As Linux's futex.
	 */
	void (*wait)(void *context, const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
	/* Wakes all who wait at the word. */
	void (*wake)(void *context, const uint32_t *word);
	/* The processor this thread is on, roughly. Any number. */
	unsigned (*cpu)(void *context);
	/*
	 * If this thread is on the processor that cpu calls so: adds to a word
	 * that nothing else adds to, so that a plain addition will do, as long as
	 * the thread is not moved in the midst of it. False: it is elsewhere, and
	 * nothing was added. What was stored before is seen before. NULL: the
	 * engine adds by atomic instructions only.
	 */
	bool (*add_here)(void *context, unsigned cpu, uint64_t *word, uint64_t value);
	/*
	 * Lets another thread have this processor, if one wants it, and returns
	 * soon: called by a thread that waits for another's commit, before it
	 * sleeps. NULL: it does not give way.
	 */
	void (*yield)(void *context);
	/* A clock that does not go back. */
	uint64_t (*now_ns)(void *context);
	/* Reads a block from its home, at recovery. 0 or NVJ_EIO. */
	int (*read)(void *context, uint64_t block, void *image);
	/*
	 * Starts a write to a block's home. Each partition has a queue, its
	 * number, and nvj_bring_home has one, the number of partitions; there are
	 * no more than NVJ_QUEUE_DEPTH writes on it, all of one thread at a time,
	 * which also fetches them. 0, or NVJ_EIO if it was not started.
	 */
	int (*start_write)(void *context, unsigned queue, struct nvj_write *write);
	/* Waits for one of the queue's writes to end, and returns it. */
	struct nvj_write *(*finish_write)(void *context, unsigned queue);
	/* All writes that have ended are on the disk for good. 0 or NVJ_EIO. */
	int (*flush)(void *context);
	/*
	 * Ordered mode: called by the committing thread when no handle of
	 * transaction tid and of those merged with it is open any more, before
	 * the commit record; returns when their data is on the disk for good.
	 * On an error the journal aborts.
	 */
	int (*before_commit)(void *context, uint64_t tid);
	/*
	 * A checkpoint has moved the tail to transaction tid: that is persistent in
	 * the region, and nobody uses yet what it frees. Called by the thread that
	 * ends the round, one at a time, with rising numbers. NULL: not told.
	 */
	void (*tail_moved)(void *context, uint64_t tid);
	/* The journal aborts: told once, with the error and the block, or ~0. */
	void (*aborted)(void *context, int error, uint64_t block);
};

#define NVJ_QUEUE_DEPTH 32u
#define NVJ_MAX_QUEUES (NVJ_MAX_PARTITIONS + 1u)

/* --- Format, check, recover ---------------------------------------------- */

struct nvj_format_options {
	uint32_t partitions;   /* 1..64; 0: 1 */
	uint32_t commits;      /* a power of two; 0: one for 4 KiB of the region, 16..4096 */
	uint8_t uuid[16];      /* must not be 0: random */
	uint8_t disk_uuid[16]; /* 0: any disk */
	uint64_t now_unix;
};

/*
 * Makes an empty journal of the whole region. What was in it is lost. NVJ_ENOSPC:
 * the region is too small for the partitions; NVJ_EINVAL.
 */
int nvj_format(const struct nvj_region *region, const struct nvj_format_options *options);

/* The superblock, from whichever copy is sound. NVJ_ENODATA, NVJ_EFORMAT, NVJ_EUCLEAN. */
int nvj_read_super(const struct nvj_region *region, struct nvj_disk_super *super);

/* The tail, from whichever copies are sound. As nvj_read_super; NVJ_EUCLEAN: both are damaged. */
int nvj_read_tail(const struct nvj_region *region, uint64_t *tid);

/* Fills in a mark of the journal with that UUID. */
void nvj_mark_make(struct nvj_disk_mark *mark, const uint8_t uuid[16], uint64_t tail_tid);
/* The tail that it names; 0: it is no mark, it is damaged, or it is of another journal. */
uint64_t nvj_mark_tail(const struct nvj_disk_mark *mark, const uint8_t uuid[16]);

/* What was found wrong, and where. */
enum nvj_finding_kind {
	NVJ_FOUND_SUPER = 1, /* one copy of the superblock is damaged; the other is used */
	NVJ_FOUND_TAIL,      /* one copy of the tail is damaged; the other is used */
	NVJ_FOUND_TAILS,     /* both are: unusable */
	NVJ_FOUND_COMMIT,    /* a record of the commit ring is damaged */
	NVJ_FOUND_RECORD,    /* a record of a partition is damaged, below the last commit */
	NVJ_FOUND_LAYOUT,    /* the superblock's sizes contradict each other or the region */
};

struct nvj_finding {
	enum nvj_finding_kind kind;
	uint32_t partition; /* of NVJ_FOUND_RECORD */
	uint64_t position; /* of NVJ_FOUND_RECORD: its line; of NVJ_FOUND_COMMIT: the transaction */
	uint64_t offset;   /* in the region, bytes */
	bool unreadable;   /* the memory there fails (struct nvj_region, read) */
};

#define NVJ_MAX_FINDINGS 16u

/* What nvj_check, nvj_recover and nvj_open found. */
struct nvj_report {
	uint64_t tail_tid;      /* at home */
	uint64_t committed_tid; /* the last one committed */
	uint64_t transactions;  /* committed, not yet at home */
	uint64_t records;       /* of these, that were or would be replayed */
	uint64_t revoked;       /* records that a revoke kept from it */
	uint64_t uncommitted;   /* records of transactions that did not commit: passed over */
	uint64_t blocks;        /* written home */
	uint64_t journal_bytes; /* read */
	uint32_t findings;      /* how many were made; the first NVJ_MAX_FINDINGS are kept */
	bool clean;             /* nothing to replay */
	struct nvj_finding finding[NVJ_MAX_FINDINGS];
};

/* Reads all that recovery would, and changes nothing. 0: sound; NVJ_EUCLEAN: see the report. */
int nvj_check(const struct nvj_region *region, const struct nvj_platform *platform,
	      struct nvj_report *report);

/*
 * Carries all that is committed home. First everything is checked; if anything
 * is damaged within the committed part nothing is written (NVJ_EUCLEAN). A crash
 * meanwhile does no harm: it is done again. Partitions are independent:
 * parallel, if the platform passes run (below) to nvj_recover_with.
 */
int nvj_recover(const struct nvj_region *region, const struct nvj_platform *platform,
		struct nvj_report *report);

/* Runs work(argument, n) for each n below count, in threads or in turn, and returns after all. */
typedef void nvj_run(void *context, unsigned count, void (*work)(void *argument, unsigned n),
		     void *argument);
int nvj_recover_with(const struct nvj_region *region, const struct nvj_platform *platform,
		     nvj_run *run, struct nvj_report *report);

/*
 * Calls visit for each sound record between tail and the last commit, partition
 * by partition in the order of the ring, until it returns other than 0, which
 * is returned. lines has the record's payload, packed. For nvj dump.
 */
typedef int nvj_visit(void *context, uint32_t partition, const struct nvj_disk_record *record,
		      const void *lines, bool committed);
int nvj_walk(const struct nvj_region *region, const struct nvj_platform *platform, nvj_visit *visit,
	     void *context);

/* --- An open journal ----------------------------------------------------- */

struct nvj;

struct nvj_options {
	uint8_t disk_uuid[16]; /* must be the journal's, unless either is 0 */
	nvj_run *recover_with; /* NULL: partitions are recovered in turn */
	/*
	 * Checkpoint begins when a ring is this full, 1..100; 0: 50. Handles
	 * wait when it is nearly full.
	 */
	unsigned checkpoint_percent;
	/*
	 * The caller runs nvj_checkpoint_worker in a thread for each partition.
	 * Without, whoever finds the journal full checkpoints it himself.
	 */
	bool workers;
};

/*
 * Opens the region's journal: recovers it if need be, writes an anchor. One at a
 * time may have a region open; the caller sees to that. The region, platform
 * and persistence must live until nvj_close; the structs are copied.
 */
int nvj_open(struct nvj **journal, const struct nvj_region *region,
	     const struct nvj_platform *platform, const struct nvj_options *options,
	     struct nvj_report *report);

/*
 * Commits, carries everything home and closes; then the region is clean.
 * NVJ_EBUSY while handles are open or credits reserved: nothing was done. On another error it is
 * closed, and the region keeps what is not at home.
 */
int nvj_close(struct nvj *journal);

/* Closes at once, as a crash would: for tests, and after an abort. */
void nvj_abandon(struct nvj *journal);

/* --- Handles ------------------------------------------------------------- */

#define NVJ_HANDLE_BLOCKS 8u
/* Lines of records that a handle keeps until it writes them, all at once. */
#define NVJ_HANDLE_LINES 32u

/*
 * One operation: all its changes survive a crash, or none. It lies in the
 * caller's memory, is used by one thread at a time, and does not move. The
 * fields are the journal's. 2.3 KiB.
 */
struct nvj_handle {
	struct nvj *journal;
	uint64_t tid;
	uint32_t credits; /* lines that it may still log */
	uint32_t taken;   /* lines that were set aside for it */
	unsigned cpu;
	uint32_t records; /* not yet flagged */
	uint32_t written; /* of these, the first ones: the others are kept */
	uint32_t kept_lines;
	uint32_t partition[NVJ_HANDLE_BLOCKS];
	uint64_t position[NVJ_HANDLE_BLOCKS];
	uint64_t kept[(NVJ_HANDLE_LINES + 1) * (NVJ_LINE_BYTES / 8)];
};

/*
 * Begins an operation that logs at most credits lines: a record takes one and
 * one for each changed line, NVJ_BLOCK_CREDITS at most. Waits here, and never
 * later, while the journal is full. NVJ_ENOSPC: more than nvj_max_credits();
 * NVJ_EROFS. A thread may not start a second handle while it has one.
 */
int nvj_start(struct nvj *journal, struct nvj_handle *handle, uint32_t credits);

/* The most that a handle may ask for: a quarter of a ring. */
uint32_t nvj_max_credits(const struct nvj *journal);

/* More credits, if there are any without waiting; else NVJ_EAGAIN. */
int nvj_extend(struct nvj_handle *handle, uint32_t credits);

/*
 * Credits that outlive their handle, for an operation that will come for certain
 * and must then not wait: one that before_commit may be waiting for, as for the
 * end of a write of file data that needs a handle of its own. It lies in the
 * caller's memory and does not move. The fields are the journal's.
 */
struct nvj_reserved {
	struct nvj *journal;
	uint32_t credits;
	unsigned cpu;
};

/*
 * Takes credits from what the handle has left: it was started with so many more,
 * in one nvj_start, so that nobody waits for credits while he keeps others from
 * them. They belong to no transaction. Never waits. NVJ_ENOSPC: the handle has
 * not so many left; nothing was taken.
 */
int nvj_reserve(struct nvj_handle *handle, struct nvj_reserved *reserved, uint32_t credits);

/*
 * As nvj_start, with these credits, in whatever transaction is the right one by
 * now; the reservation is used up. Does not wait for room, nor credits, nor a
 * commit, nor any handle; any thread that has no handle may do it. NVJ_EROFS: the
 * reservation is used up all the same.
 */
int nvj_start_reserved(struct nvj_reserved *reserved, struct nvj_handle *handle);

/* Gives the reservation up, by any thread. */
void nvj_unreserve(struct nvj_reserved *reserved);

/*
 * The caller is about to change the block, whose 4096 bytes are now at image.
 * Needed once a handle and block, before the change; all memory that nvj_log
 * could want is found here. NVJ_ENOMEM, NVJ_EROFS: the block must not be changed.
 *
 * NULL: the caller's memory may have been changed without us, so it does not tell
 * what is at home. nvj_log compares with what it logged last; if that is at home
 * already, it logs all lines, as after nvj_create.
 */
int nvj_access(struct nvj_handle *handle, uint64_t block, const void *image);

/*
 * The same for a block that is new: what is at home does not count, so all its
 * lines will be logged (lines of zeros take no room).
 */
int nvj_create(struct nvj_handle *handle, uint64_t block);

/* nvj_log finds the changed lines itself, by comparison with the last image logged. */
#define NVJ_COMPARE UINT64_C(0)
#define NVJ_ALL_LINES (~UINT64_C(0))

/*
 * The caller has changed the block, whose bytes are now at image; mask says
 * which lines, bit n for bytes 64n..64n+63 (more than changed is harmless,
 * fewer is not), or NVJ_COMPARE. The change is the journal's when it returns: the
 * memory may change again. It is in the region, and persistent, at the latest when
 * the handle stops. 0: nothing had changed; else
 * the lines that the record took. NVJ_ENOSPC: more than the handle's credits;
 * NVJ_EROFS. Two threads may log the same block only in an order that the caller
 * keeps (his lock on the block, or distinct lines by mask).
 */
int nvj_log(struct nvj_handle *handle, uint64_t block, const void *image, uint64_t mask);

/* The same for file data: counted apart. */
int nvj_log_data(struct nvj_handle *handle, uint64_t block, const void *image, uint64_t mask);

/*
 * What the handle has changed may rest on what a handle of transaction tid, later
 * than its own, has done: that both changed the same block is seen by the engine,
 * but not that one has read what the other keeps elsewhere. They commit together,
 * as where both changed a block. Some handle of tid must have begun.
 */
void nvj_merge(struct nvj_handle *handle, uint64_t tid);

/*
 * The block is freed: once this transaction is committed, neither checkpoint nor
 * recovery writes what was logged of it before. Takes one line. The caller may
 * use it for something else after that commit.
 */
int nvj_revoke(struct nvj_handle *handle, uint64_t block);

/*
 * Ends the operation. Returns its transaction, for nvj_commit; or, as long as
 * nobody has logged anything in that, the one before.
 */
uint64_t nvj_stop(struct nvj_handle *handle);

/* --- Commit and checkpoint ----------------------------------------------- */

/*
 * Returns when transaction tid is committed; without handing over to another
 * thread: the caller closes and commits it, or waits for one who does. Handles
 * of the next transaction run on meanwhile. A transaction whose open handle
 * wants a block that the next one has already changed commits together with
 * that (NVJ_MERGED): nobody waits in the middle of a handle. tid 0: all that was
 * stopped before. Where nothing was logged since the last commit there is nothing
 * to do: 0, at once, and nvj_committed() stays as it is. NVJ_EIO, NVJ_EROFS: it may or may not
 * survive. Must not be called with a handle open.
 */
int nvj_commit(struct nvj *journal, uint64_t tid);

/* The last transaction committed. */
uint64_t nvj_committed(const struct nvj *journal);

/* The newest transaction that is at home, it and all before it: at most nvj_committed(). */
uint64_t nvj_tail(const struct nvj *journal);

/* Carries home all that is committed now, and moves the tail. */
int nvj_checkpoint(struct nvj *journal);

/*
 * Carries home what is committed of these blocks, without a checkpoint of all others;
 * flush: and out of the disk's cache. For who is about to read them from the disk, or
 * to write them himself. Before he writes he revokes them, for a crash would have
 * replayed over it what was logged; before the revokes are committed the disk is
 * flushed, here or by before_commit; and they are committed before anybody is told
 * that his writes are there for good. NVJ_EAGAIN: something was logged of one of
 * them that is not committed; the others may be at home or not. NVJ_EIO, NVJ_EROFS.
 * Must not be called with a handle open.
 */
int nvj_bring_home(struct nvj *journal, const uint64_t *blocks, unsigned count, bool flush);

/* The checkpoint thread of a partition; returns after nvj_stop_workers. */
void nvj_checkpoint_worker(struct nvj *journal, unsigned partition);

/*
 * The commit worker of a partition (paper 4, Fig. 3): follows the flags and
 * advances last_check, so that a committing thread has less to look at. Not
 * needed: who commits looks himself.
 */
void nvj_commit_worker(struct nvj *journal, unsigned partition);

void nvj_stop_workers(struct nvj *journal);

/*
 * Gives memory back: up to so many images (copies of blocks, NVJ_BLOCK_BYTES each) of
 * blocks that are at home and that no open handle knows. Returns how many. It looks at
 * twice as many blocks at most, and *scanned is how many it looked at. It waits for no
 * lock: it leaves out what is in use. 0 with *scanned 0: nothing is there, or all is in use.
 */
uint64_t nvj_shrink(struct nvj *journal, uint64_t images, uint64_t *scanned);
/* Images that have memory now. */
uint64_t nvj_images(const struct nvj *journal);

/*
 * The block as it was last logged, into image: a reader that finds it here must
 * not use what is at home. False: it is at home.
 */
bool nvj_peek(struct nvj *journal, uint64_t block, void *image);

/* The error that the journal was aborted with; 0: it was not. */
int nvj_aborted(const struct nvj *journal);
/* Takes no more changes; what is committed stays in the region. */
void nvj_abort(struct nvj *journal, int error);

struct nvj_statistics {
	uint64_t handles;
	uint64_t transactions;   /* committed */
	uint64_t merged;         /* of these, with the next one */
	uint64_t commits_waited; /* calls of nvj_commit that another's commit served */
	uint64_t records;
	uint64_t record_lines; /* headers included */
	uint64_t zero_lines;   /* not written, being 0 */
	uint64_t data_records;
	uint64_t revokes;
	uint64_t fences;      /* of record, commit and tail */
	uint64_t start_waits; /* handles that waited for room */
	uint64_t start_wait_ns;
	uint64_t frozen; /* images kept aside as a later transaction changed the block */
	uint64_t checkpoints;
	uint64_t blocks_home; /* written by checkpoint */
	uint64_t running_tid, committed_tid, tail_tid;
	uint64_t used_lines; /* of the fullest ring */
	uint64_t ring_lines;
	uint32_t partitions;
};

void nvj_statistics(const struct nvj *journal, struct nvj_statistics *statistics);

#ifdef __cplusplus
}
#endif

#endif
