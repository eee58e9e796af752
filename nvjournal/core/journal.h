/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * An open journal in memory. Each file of the engine has one part of the work:
 *
 * 	journal.c	open, close, abort
 * 	handle.c	start and stop of a handle, and its count
 * 	start.c		waits before it starts, without sleeping
 * 	reserve.c	credits for a handle that must not wait
 * 	credits.c	credits: the right to log lines
 * 	room.c		what happens when a ring is nearly full
 * 	block.c		the table of blocks; image.c has their memory
 * 	access.c	a block before its first change
 * 	log.c		writes a change into its ring; revoke.c cancels it
 * 	lines.h		compares and copies its lines
 * 	frozen.h	what the block was before it
 * 	later.c		writes it when the transaction closes
 * 	flags.c		which records are whole
 * 	lead.c		the thread that does a commit; the others wait
 * 	commit.c	close, drain, merge, seal
 * 	checkpoint.c	rounds; home.c has the writes of a partition
 *
 * Locks, in the order in which they may be taken: of a bucket, of a block,
 * list_lock of a partition. There is no lock for the whole journal.
 */
#ifndef NVJ_JOURNAL_H
#define NVJ_JOURNAL_H

#include "../include/nvjournal.h"
#include "atomic.h"
#include "compiler.h"
#include "format.h"
#include "lock.h"

/* Counters exist for so many processors. Further processors share them. */
#define NVJ_CPUS 64u
/*
 * How many transactions have counters of their own: a power of two, and at
 * least as many as can be live at a time.
 */
#define NVJ_SLOTS 4u
/*
 * The most transactions that commit together. When the third closes, new
 * handles wait.
 */
#define NVJ_GROUP 3u
/*
 * After this time, in nanoseconds, a waiting thread checks again, even if it
 * was not woken.
 */
#define NVJ_SAFETY_NS UINT64_C(10000000)
/*
 * By how many lines a record may exceed the credits of its handle, if its lines
 * change during the logging (log.c).
 */
#define NVJ_SLACK_LINES (2u * NVJ_BLOCK_CREDITS)

/* --- Division by a number that is fixed at open --------------------------- */

struct nvj_divisor {
	uint64_t by;
	uint64_t reciprocal; /* (2^64 - 1) / by */
};

static inline struct nvj_divisor nvj_divisor(uint64_t by)
{
	return (struct nvj_divisor){.by = by, .reciprocal = UINT64_MAX / by};
}

/* n mod by. The quotient by the reciprocal is correct or one too small. */
static inline uint64_t nvj_remainder(const struct nvj_divisor *d, uint64_t n)
{
#ifdef __SIZEOF_INT128__
	uint64_t quotient = (uint64_t)((__extension__(unsigned __int128) n * d->reciprocal) >> 64);
	uint64_t rest = n - quotient * d->by;

	return rest >= d->by ? rest - d->by : rest;
#else
	return n % d->by;
#endif
}

/* --- Blocks --------------------------------------------------------------- */

/*
 * Memory for the content of one block. Neighbours in memory are often blocks of
 * different processors.
 */
struct nvj_image {
	NVJ_ALONE struct nvj_image *next;
	uint8_t *bytes;      /* NVJ_BLOCK_BYTES */
	uint64_t tid;        /* the transaction whose records made this content; 0: none */
	uint64_t revoked_by; /* when it is sealed, the image is obsolete; 0: none */
	/*
	 * Of a frozen image: the lines that it has. The others did not change
	 * after it, so they are those of the next newer version.
	 */
	uint64_t lines;
};

#define NVJ_NO_BLOCK (~UINT64_C(0))

/* Lists of blocks with work for the end of a transaction. */
enum nvj_list {
	NVJ_LIST_REVOKED, /* revoke.c */
	NVJ_LIST_LATER,   /* later.c */
	NVJ_LISTS
};

/*
 * A block that is not completely at home, or that was used recently. Entries
 * are freed only in nvj_close. Before that they are reused for other blocks. So
 * a search needs no lock. All fields except number, next and the two tids are
 * under lock.
 */
struct nvj_block {
	NVJ_ALONE uint64_t number; /* atomic; NVJ_NO_BLOCK: free */
	struct nvj_block *next;    /* atomic: in its bucket */
	/*
	 * Atomic, written under lock: the last transaction that accessed,
	 * created or revoked it.
	 */
	uint64_t newest_tid;
	/*
	 * The last transaction that accessed it and did not revoke it: for it
	 * nothing is left to prepare.
	 */
	uint64_t access_tid;
	struct nvj_lock lock;
	bool created; /* the content at home is not valid: the next record has all lines */
	bool dirty;   /* in the dirty list of lists, or taken by a round */
	uint8_t listed[NVJ_LISTS]; /* bit n: in listed[][n] of lists */
	struct nvj_image *image;   /* as last logged, or as it was at the first access */
	uint64_t home_tid; /* the transaction of the version at home, if it is one of ours */
	uint64_t sequence; /* of its last record */
	/*
	 * The caller's memory, if a change in transaction later_tid is not
	 * logged yet: later.c.
	 */
	const void *later;
	uint64_t later_tid;
	/*
	 * Counters, atomic to read: records, records that were the first after a
	 * fence, lines of zeros in records, and frozen images.
	 */
	uint32_t records;
	uint32_t batches;
	uint32_t zero_lines;
	uint32_t freezes;
	struct nvj_image *frozen; /* of earlier transactions, not at home; the newest first */
	struct nvj_image *spares; /* for the next freezes; they stay with the block */
	uint8_t spare_count;
	uint8_t promised;            /* how many of them open transactions may take */
	bool writing;                /* a version is being written home, from a copy */
	uint64_t writing_revoked_by; /* revoked_by of that version */
	struct nvj_block *dirty_next;
	struct nvj_block *listed_next[NVJ_LISTS][NVJ_SLOTS];
	struct nvj_block *free_next;
	/*
	 * Fixed: the partition that has the entry in its slabs, and so in its
	 * lists. With rings by processor it is that of the processor that made the
	 * entry, and its number may be of another partition.
	 */
	struct nvj_partition *lists;
};

struct nvj_bucket {
	struct nvj_block *first; /* atomic */
	struct nvj_lock lock;    /* for changes of the chain */
};

/* --- Partitions ----------------------------------------------------------- */

struct nvj_partition;

struct nvj_home_write {
	struct nvj_write write;
	struct nvj_block *block;
	uint64_t tid;   /* of the version */
	uint8_t *bytes; /* a copy of the version, NVJ_BLOCK_BYTES */
	struct nvj_home_write *next;
};

/*
 * Writes to homes, by one thread at a time, on the platform's queue of that
 * number.
 */
struct nvj_home_queue {
	unsigned number;
	unsigned under_way;
	struct nvj_partition *round; /* whose blocks are written; NULL: nvj_bring_home */
	struct nvj_home_write writes[NVJ_QUEUE_DEPTH];
	struct nvj_home_write *free_writes;
};

struct nvj_partition {
	/* Atomic: the position of the next record. */
	NVJ_ALONE uint64_t head;

	/* Read by all threads that log; written by a checkpoint. */
	NVJ_ALONE uint8_t *lines; /* of the ring, in the region */
	/*
	 * For each line of the ring, atomic: position << 8 | number of lines of
	 * the persistent records of one reservation that starts there. The index
	 * is nvj_flag_at.
	 */
	uint64_t *flags;
	struct nvj_bucket *buckets;
	unsigned bucket_shift; /* index of a number times NVJ_HASH */
	unsigned index;
	/* Atomic positions in the ring. At alarm, check limit and end. */
	uint64_t alarm;
	uint64_t half;  /* when head is here, a checkpoint should start */
	uint64_t limit; /* when head is here, handles wait */
	uint64_t end;   /* here needed records would be overwritten: head never gets here */

	/* Atomic: all records before it have flags. See flags.c. */
	NVJ_ALONE uint64_t last_check;

	/*
	 * Atomic: the highest sequence of an evicted block of this partition. New
	 * entries for its blocks continue there, because the rings may still have
	 * records of their block. In a line of its own: each new entry reads it,
	 * and few evictions change it.
	 */
	NVJ_ALONE uint64_t sequence;

	/*
	 * For all fields from here to block_slabs. What a new entry changes is in
	 * one cache line.
	 */
	NVJ_ALONE struct nvj_lock list_lock;
	struct nvj_block *dirty;
	struct nvj_image *free_images;
	struct nvj_image *bare_images; /* free images without memory */
	uint64_t images;               /* atomic to read: with memory */
	struct nvj_block *free_blocks;
	uint64_t blocks;      /* atomic to read: of the entries in block_slabs, not free */
	uint64_t most_blocks; /* how many clean entries may stay, by default */
	/* Atomic to read: at tid mod NVJ_SLOTS. Each commit reads these. */
	struct nvj_block *listed[NVJ_LISTS][NVJ_SLOTS];
	/*
	 * The clock hand: the next entry that it examines. NULL, or at the end of
	 * the slab: the first one of the next slab, or of the first slab.
	 */
	struct nvj_slab *clock;
	unsigned clock_at;
	uint64_t entries; /* in block_slabs */
	/* Counters, atomic: of entries that are now used for another block. */
	uint64_t records;
	uint64_t batches;
	uint64_t zero_lines;
	uint64_t freezes;
	struct nvj_slab *image_slabs;
	struct nvj_slab *block_slabs;

	/* Of the thread that has claimed the partition in a round. */
	NVJ_ALONE uint64_t claimed; /* atomic: the last round for which a thread claimed it */
	struct nvj_home_queue home;
};

/* --- The journal ---------------------------------------------------------- */

/*
 * The counters of a processor, in cache lines of their own. All are atomic
 * except ended_here. A handle adds 1 to started when it starts, and 1 to ended
 * when it stops. The same addition contains its credits, shifted. The counters
 * overflow in time: only the difference of started and ended is meaningful.
 */
#define NVJ_CREDIT_SHIFT 32

struct nvj_cpu {
	NVJ_ALONE uint64_t started[NVJ_SLOTS];
	uint64_t ended_here[NVJ_SLOTS]; /* changed by platform.add_here, and by nothing else */
	uint64_t ended[NVJ_SLOTS];      /* handles that add_here could not count */
	NVJ_ALONE uint64_t quota; /* credits that the handles started here may have together */
	/*
	 * Atomic, at tid mod NVJ_SLOTS: tid, when a handle of it that started
	 * here has logged a record.
	 */
	uint64_t dirty[NVJ_SLOTS];
	uint64_t reserved;    /* atomic: for each reservation 1 and its credits, shifted */
	uint64_t started_4g;  /* how often 2^32 handles were counted in one of started */
	uint64_t not_started; /* of these, handles that had to stop at once */
	uint64_t data_records;
	uint64_t revokes;
	uint64_t commits_waited;
	/*
	 * Of handles that start while draining: after a wait that was in vain, the
	 * next `skips` do not wait, and after the next one in vain twice as many.
	 */
	uint32_t skips;
	uint32_t skips_next;
	uint64_t lock_waits[NVJ_LOCK_KINDS];
	uint64_t lock_wait_ns[NVJ_LOCK_KINDS];
#ifdef NVJ_LOCK_TIMES
	uint64_t lock_holds[NVJ_LOCK_KINDS];
	uint64_t lock_hold_ticks[NVJ_LOCK_KINDS];
	uint64_t lock_longest_ticks[NVJ_LOCK_KINDS];
#endif
};

/* What one handle or reservation with these credits adds. */
static inline uint64_t nvj_counted(uint64_t credits)
{
	return 1 + (credits << NVJ_CREDIT_SHIFT);
}

/*
 * Bits of hold. The bits above them are a number, which each raise of TIGHT
 * increases.
 */
#define NVJ_HOLD_TIGHT 1u   /* a ring is nearly full */
#define NVJ_HOLD_GATE 2u    /* a commit has merged so many transactions that it must end */
#define NVJ_HOLD_ABORTED 4u /* permanent */
#define NVJ_HOLD_BITS 255u
#define NVJ_HOLD_RAISE 256u

struct nvj {
	/* Fixed at open. */
	NVJ_ALONE struct nvj_geometry geometry;
	const struct nvj_persistence *persistence;
	struct nvj_partition *partition;
	struct nvj_cpu *cpu; /* NVJ_CPUS elements */
	uint64_t *lows;      /* at (tid mod commits) * partitions: low of each ring, atomic */
	struct nvj_divisor by_ring;
	struct nvj_divisor by_partitions;
	uint32_t partitions;
	uint32_t max_credits;  /* K */
	uint32_t later_most;   /* of these, only for pending blocks (later.c) */
	uint32_t credit_chunk; /* how many credits a quota takes at a time */
	unsigned checkpoint_percent;
	bool workers;
	struct nvj_platform platform;

	/*
	 * Read by each handle, written by a commit: in one cache line. Atomic.
	 */
	NVJ_ALONE uint64_t running;
	uint64_t merge_to; /* the transaction that this one must be committed together with */
	uint32_t draining; /* the leader waits for handles: those that start now may wait, too */

	/*
	 * Atomic: the transaction whose handles the leader waits for; 0: none.
	 * Only handles that have placed records read it.
	 */
	NVJ_ALONE uint64_t closing;

	/* Read by each handle, and written less often. */
	NVJ_ALONE uint32_t hold;
	int aborted;             /* the error */
	uint32_t cpus;           /* no processor at or above this has started a handle */
	uint32_t wanted;         /* a checkpoint is wanted */
	struct nvj_bell drained; /* for the leader: a handle of the closing transaction has ended */
	struct nvj_bell credited; /* for threads that wait for credits */
	/*
	 * gate_tid: while GATE is shut, the last transaction of the group.
	 * joinable: the same, as long as a handle with a reservation may still
	 * start in it, otherwise 0.
	 */
	uint64_t gate_tid;
	uint64_t joinable;

	/*
	 * Commit: written by the leader and read by its followers. In one cache
	 * line.
	 */
	NVJ_ALONE uint64_t sealed; /* atomic: the last transaction with a persistent seal */
	uint64_t committed;    /* atomic: the last transaction for which nvj_commit has returned */
	uint64_t transactions; /* counters, atomic to read */
	uint64_t merged;
	uint64_t commit_ns; /* how long the last commit took: for those that wait for the next */
	/*
	 * Who leads. In another line, so that threads that wait for committed do
	 * not take it from each other.
	 */
	NVJ_ALONE uint32_t leading; /* atomic: there is a leader */
	struct nvj_bell followers;
	NVJ_ALONE struct nvj_commit_buffer record[NVJ_GROUP]; /* only the leader uses it */

	/* Checkpoint. */
	NVJ_ALONE uint64_t tail; /* atomic */
	struct nvj_bell written; /* for threads that wait until the write of a block ends */
	uint64_t round;          /* atomic: the number of the current round */
	uint64_t round_target;
	uint32_t round_active; /* atomic */
	uint32_t round_left;   /* atomic: partitions that are not done */
	uint32_t stopping;     /* atomic: workers must return */
	struct nvj_bell round_ended;
	struct nvj_bell work; /* for workers */
	struct nvj_lock brought_lock;
	struct nvj_home_queue brought; /* for nvj_bring_home */

	/* Atomic: credits of pending blocks. */
	NVJ_ALONE uint64_t later_lines;
	struct nvj_handle leader; /* only the leader uses it, for its records */

	NVJ_ALONE uint64_t credits;  /* atomic: credits that are in no processor's quota */
	struct nvj_lock credit_lock; /* one thread at a time searches all quotas */

	/* Counters, atomic. */
	NVJ_ALONE uint64_t fences; /* fences for tails and the anchor */
	uint64_t start_waits;
	uint64_t start_wait_ns;
	uint64_t checkpoints;
	uint64_t blocks_home;
	uint32_t shrinks;                        /* each shrink starts at another partition */
	uint64_t first_line[NVJ_MAX_PARTITIONS]; /* head at open */
#ifdef NVJ_LOCK_TIMES
	uint64_t opened_ticks; /* both at the same time */
	uint64_t opened_ns;
#endif
};

/* Handles of transactions in this slot that have ended, as in started. */
static inline uint64_t nvj_cpu_ended(const struct nvj *j, const struct nvj_cpu *c, unsigned slot)
{
	uint64_t here = j->platform.add_here ? nvj_load_sc(&c->ended_here[slot]) : 0;

	return here + nvj_load_sc(&c->ended[slot]);
}

/*
 * The number of open handles and reservations, and their credits, shifted. All
 * ended are read before all started, and a handle is counted in started before it
 * is counted in ended. So the result is never less than the number that was
 * open at the moment between. Credits that move from or to a reservation are
 * counted twice meanwhile. reserved is read between started and ended, so the
 * result is never too small because of that, either.
 */
static inline uint64_t nvj_cpu_open(const struct nvj *j, const struct nvj_cpu *c)
{
	uint64_t open = 0;

	/* Each handle does this when it starts: a loop would cost more than the additions. */
	if (j->platform.add_here) {
		NVJ_UNROLLED
		for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
			open -= nvj_load_sc(&c->ended_here[slot]);
	}
	NVJ_UNROLLED
	for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
		open -= nvj_load_sc(&c->ended[slot]);
	open += nvj_load_sc(&c->reserved);
	NVJ_UNROLLED
	for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
		open += nvj_load_sc(&c->started[slot]);
	return open;
}

static inline unsigned nvj_partition_of(const struct nvj *j, uint64_t block)
{
	return (unsigned)nvj_remainder(&j->by_partitions, block);
}

static inline void nvj_fence(const struct nvj *j)
{
	nvj_point();
	j->persistence->fence(j->persistence);
	nvj_point();
}

static inline uint64_t *nvj_lows(struct nvj *j, uint64_t tid)
{
	return j->lows + (tid & (j->geometry.commits - 1)) * j->partitions;
}

static inline void *nvj_allocate(const struct nvj *j, size_t bytes)
{
	return j->platform.allocate(j->platform.context, bytes);
}

/* NVJ_BLOCK_BYTES with any content. */
static inline void *nvj_allocate_block(const struct nvj *j)
{
	if (j->platform.allocate_block)
		return j->platform.allocate_block(j->platform.context);
	return nvj_allocate(j, NVJ_BLOCK_BYTES);
}

/*
 * journal.c: aborts the journal. block is the block that failed, or
 * NVJ_NO_BLOCK.
 */
void nvj_abort_at(struct nvj *j, int error, uint64_t block);

/* credits.c */
/*
 * Says whether the handles started here have at most the credits that they may
 * have.
 */
static inline bool nvj_credits_fit(const struct nvj *j, const struct nvj_cpu *c)
{
	return nvj_cpu_open(j, c) >> NVJ_CREDIT_SHIFT <= nvj_load_sc(&c->quota);
}
/*
 * Makes room for that many more credits. The caller holds credit_lock. False:
 * there are not enough now.
 */
bool nvj_credits_collect(struct nvj *j, unsigned cpu, uint64_t credits);
/* The same, and waits for them. Returns 0 or NVJ_EROFS. */
int nvj_credits_find(struct nvj *j, unsigned cpu, uint64_t credits);

/* room.c */
/*
 * Called when the head of a ring is beyond its alarm. NVJ_EROFS: needed records
 * would have been overwritten.
 */
int nvj_room_alarm(struct nvj *j, struct nvj_partition *p, uint64_t head);
/* Called before a commit, with which so many slots of the commit ring are used. */
void nvj_room_slots(struct nvj *j, uint64_t used);
/*
 * Called when the tail is at a transaction with these lows. Sets how far the
 * rings may be filled.
 */
void nvj_room_moved(struct nvj *j, const uint64_t *lows);
/* Clears TIGHT if no ring is beyond its limit. */
void nvj_room_review(struct nvj *j);
/*
 * Waits until hold may differ from the given value. The caller itself makes
 * room if there is no worker.
 */
void nvj_room_wait(struct nvj *j, uint32_t hold);
/*
 * Says whether a commit should precede a checkpoint, because the records that
 * fill a ring are not committed.
 */
bool nvj_room_wants_commit(struct nvj *j);

/* handle.c */
/*
 * Counts a handle and its credits in the running transaction, which it returns.
 */
uint64_t nvj_count_in(struct nvj *j, unsigned cpu, uint64_t credits);
/* Counts a handle in transaction tid. */
void nvj_count_started(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits);
void nvj_count_out(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits);
/* Removes the count of a handle that could not start. */
void nvj_count_back(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits);
/*
 * Says whether a handle of the transaction has logged a record. Looks at cpu
 * first.
 */
bool nvj_is_dirty(struct nvj *j, unsigned cpu, uint64_t tid);
/* Says whether no handle of the transaction is open. */
bool nvj_handles_ended(const struct nvj *j, uint64_t tid);
/*
 * The same for a transaction that is closed: no new handle joins it. The first
 * *cpu processors have none, and stay so. *cpu increases.
 */
bool nvj_handles_drained(struct nvj *j, uint64_t tid, unsigned *cpu);
/*
 * How long to sleep, in nanoseconds, on a bell that ending handles ring: see
 * nvj_count_out.
 */
uint64_t nvj_ended_bell_ns(const struct nvj *j);
/* Fences, and sets the flags of the handle's reservations. */
void nvj_handle_set_flags(struct nvj_handle *h);
/*
 * Called after the handle may have placed records in rings. If an earlier
 * transaction is closing, the thread that commits it needs all records before
 * its high. It must not wait until this handle stops, so they are flagged now.
 * Records that the handle keeps have no place yet.
 */
static inline void nvj_handle_placed(struct nvj_handle *h)
{
	uint64_t closing;

	if (!h->placed)
		return;
	closing = nvj_load_acquire(&h->journal->closing);
	if (NVJ_UNLIKELY(closing && closing < h->tid))
		nvj_handle_set_flags(h);
}

/* start.c */
/*
 * A commit waits for open handles. If this handle started now, its transaction would
 * often have to be merged into the commit, which would then wait for it, too. So it
 * waits, if it need not sleep. No rule depends on when a handle starts. If the handles
 * that the commit waits for do not end soon, perhaps because they have no processor,
 * the next handles start at once.
 */
void nvj_let_drain(struct nvj *j, struct nvj_cpu *c);
/*
 * The same for the gate, which the leader opens soon. Returns when hold may differ, or
 * the handle should sleep.
 */
void nvj_let_open(struct nvj *j, uint32_t hold);

/* flags.c */
/*
 * The flag of the reservation at a position. 64 flags are in 8 cache lines. Flags of
 * neighbouring records are in different lines, because consecutive records are
 * often of different processors.
 */
#define NVJ_FLAGS_TOGETHER 64u
static inline uint64_t *nvj_flag_at(const struct nvj *j, const struct nvj_partition *p,
				    uint64_t position)
{
	uint64_t place = nvj_remainder(&j->by_ring, position);

	return &p->flags[(place & ~UINT64_C(63)) | (place & 7) << 3 | (place >> 3 & 7)];
}

static inline void nvj_flag(struct nvj *j, struct nvj_partition *p, uint64_t position,
			    unsigned lines)
{
	/*
	 * Release, after the fence: for a thread that sees the flag, the record
	 * is complete.
	 */
	nvj_store_release(nvj_flag_at(j, p, position), position << 8 | lines);
}
/* Moves last_check forward, to `to` or a little further. True: it is there. */
bool nvj_flags_follow(struct nvj *j, struct nvj_partition *p, uint64_t to);

/* block.c */
#define NVJ_HASH UINT64_C(0x9e3779b97f4a7c15)
/*
 * The entry of the block, not locked. It may have been reused for another
 * block, unless a handle accesses the block.
 */
struct nvj_block *nvj_block_find(struct nvj *j, struct nvj_partition *p, uint64_t number);
/* The entry of the block, locked. NULL: it has none. */
struct nvj_block *nvj_block_lock(struct nvj *j, struct nvj_partition *p, uint64_t number);
/*
 * The same, but makes the entry if there is none. Accessed: a new entry gets an
 * image, if there is memory for one, and it is in the dirty list, although
 * nothing may be logged: the next round removes it from there. NULL: no memory.
 */
struct nvj_block *nvj_block_make(struct nvj_handle *h, uint64_t number, bool accessed);
/* Moves the counters of the entry to its partition. */
void nvj_counts_give(struct nvj_block *b);
/*
 * Evicts at most `most` clean entries, so that their images become free, and
 * decreases *looks for each entry that it examines. It waits for no lock. The
 * caller holds list_lock.
 */
uint64_t nvj_blocks_evict(struct nvj *j, struct nvj_partition *p, uint64_t most, uint64_t *looks);
/*
 * Adds the block to the dirty list, unless it is there. The caller holds its
 * lock.
 */
void nvj_block_into_dirty(struct nvj *j, struct nvj_block *b);
static inline void nvj_block_dirty(struct nvj *j, struct nvj_block *b)
{
	if (NVJ_UNLIKELY(!b->dirty))
		nvj_block_into_dirty(j, b);
}
/*
 * Adds the block to a list of the transaction, unless it is there. The caller
 * holds its lock.
 */
void nvj_block_list(struct nvj *j, struct nvj_block *b, enum nvj_list list, uint64_t tid);
/*
 * Empties a list of the transaction, to which no handle adds any more. Returns
 * its first block.
 */
struct nvj_block *nvj_listed_take(struct nvj *j, struct nvj_partition *p, enum nvj_list list,
				  uint64_t tid);
/*
 * The block is not in the list any more. Returns the next one. The caller holds
 * its lock.
 */
struct nvj_block *nvj_listed_next(struct nvj_block *b, enum nvj_list list, uint64_t tid);
static inline void nvj_block_unlock(struct nvj *j, struct nvj_block *b)
{
	nvj_unlock(&b->lock, &j->platform);
}
/*
 * The entry of a block that the handle accesses, locked. NULL: it does not.
 */
static inline struct nvj_block *nvj_block_lock_accessed(struct nvj_handle *h, uint64_t number)
{
	struct nvj *j = h->journal;
	/*
	 * Mostly the block that it accessed last. It accesses the block, so the
	 * entry is not reused.
	 */
	struct nvj_block *b = h->last;

	if (NVJ_UNLIKELY(!b || nvj_load(&b->number) != number))
		b = nvj_block_find(j, &j->partition[nvj_partition_of(j, number)], number);
	if (NVJ_UNLIKELY(!b))
		return NULL;
	nvj_lock(&b->lock, &j->platform);
	if (NVJ_LIKELY(nvj_load(&b->number) == number))
		return b;
	nvj_block_unlock(j, b);
	return NULL;
}

/* image.c */
#define NVJ_BLOCKS_OF_SLAB 32u
/* Memory that is kept until the journal closes. */
struct nvj_slab {
	struct nvj_slab *next;
	size_t bytes;             /* size of this allocation, including this structure */
	struct nvj_image *images; /* NULL: none */
	unsigned image_count;
	struct nvj_block *blocks; /* NVJ_BLOCKS_OF_SLAB, or NULL: none */
};
/* NULL: no memory. The caller holds list_lock. */
struct nvj_image *nvj_image_take_locked(struct nvj *j, struct nvj_partition *p);
/* The same. The caller does not hold list_lock. */
struct nvj_image *nvj_image_take(struct nvj *j, struct nvj_partition *p);
void nvj_image_give(struct nvj *j, struct nvj_partition *p, struct nvj_image *image);
/* Puts an image to the spares of a block. The caller holds the block's lock. */
void nvj_spare_put(struct nvj_block *b, struct nvj_image *image);
/* Takes a spare of the block. NULL: it has none. */
struct nvj_image *nvj_spare_take(struct nvj_block *b);
/* A zeroed allocation. The caller adds it to the partition's slabs. */
struct nvj_slab *nvj_slab_make(struct nvj *j, size_t bytes);
void nvj_slabs_release(struct nvj *j, struct nvj_partition *p);
/*
 * Frees the frozen images that are not needed any more. The caller holds the
 * block's lock.
 */
void nvj_frozen_trim(struct nvj *j, struct nvj_block *b);
static inline bool nvj_image_is_dead(struct nvj *j, const struct nvj_image *image)
{
	return image->revoked_by && image->revoked_by <= nvj_load_sc(&j->sealed);
}

/* log.c */
/*
 * Copies the lines of mask from the caller's memory into the block's image, and
 * reserves lines in the ring for a record of them. The handle keeps the record
 * or writes it. The caller holds the block's lock.
 */
int nvj_record_log(struct nvj_handle *h, struct nvj_block *b, enum nvj_record_kind kind,
		   uint64_t mask, const void *caller);
/*
 * Reserves lines for the records that the handle keeps, and writes them. It
 * fences only if there are too many reservations. 0 or NVJ_EROFS.
 */
int nvj_handle_write(struct nvj_handle *h);

/* As nvj_log. The caller holds the block's lock. */
int nvj_block_log(struct nvj_handle *h, struct nvj_block *b, const uint8_t *caller, uint64_t mask,
		  enum nvj_record_kind kind);

/* later.c. The caller holds the lock of the block. */
/*
 * If a change in an earlier transaction is pending, logs it. Then the handle
 * may change the caller's memory.
 */
int nvj_later_write(struct nvj_handle *h, struct nvj_block *b);
/* The block is freed: what is pending need not be logged. */
void nvj_later_drop(struct nvj *j, struct nvj_block *b);
/*
 * The leader logs all that is pending in these transactions. No handle of them
 * is open.
 */
void nvj_later_write_all(struct nvj *j, uint64_t first, uint64_t last);

/* commit.c: commits the running transaction, and those that must be with it. */
int nvj_commit_group(struct nvj *j);

/* lead.c: nvj_commit without the checkpoint after it. */
int nvj_commit_to(struct nvj *j, uint64_t tid);
/*
 * Commits the running transaction even if nothing was logged in it, to make
 * room.
 */
int nvj_commit_running(struct nvj *j);

/*
 * revoke.c: called when transaction tid is sealed. Returns when no revoked
 * version is being written home.
 */
void nvj_revokes_seal(struct nvj *j, uint64_t tid);

/* home.c */
/* 0 or NVJ_ENOMEM. nvj_home_queue_free must be called in both cases. */
int nvj_home_queue_init(struct nvj *j, struct nvj_home_queue *q, unsigned number,
			struct nvj_partition *round);
void nvj_home_queue_free(struct nvj *j, struct nvj_home_queue *q);
/* Writes the dirty blocks of the partition, as one part of a round. */
void nvj_home_write_partition(struct nvj *j, struct nvj_partition *p);
/*
 * Waits until the condition is false. The caller holds the block's lock, which
 * is released meanwhile.
 */
void nvj_home_await(struct nvj *j, struct nvj_block *b,
		    bool (*such)(struct nvj *j, const struct nvj_block *b));

/* checkpoint.c */
/* Returns when the tail is at goal or later. goal is committed. */
int nvj_checkpoint_to(struct nvj *j, uint64_t goal);
/* A checkpoint, after a commit if one is necessary. */
int nvj_checkpoint_wanted(struct nvj *j);

#endif
