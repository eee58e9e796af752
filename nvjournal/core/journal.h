/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What an open journal is in memory. Each file of the engine has its part:
 *
 *	journal.c	open, close, abort
 *	handle.c	start and stop of a handle, and its count
 *	reserve.c	credits kept for a handle that must not wait
 *	credits.c	the right to have lines under way
 *	room.c		when a ring is nearly full
 *	block.c		the table of blocks; image.c their memory
 *	access.c	a block before its first change
 *	log.c		a change into its ring; revoke.c its opposite
 *	flags.c		which records are whole
 *	commit.c	close, drain, merge, seal
 *	checkpoint.c	rounds; home.c the writes of a partition
 *
 * Locks, in the order in which they may be taken: a bucket's, a block's, a
 * partition's list_lock. There is none for the whole journal.
 */
#ifndef NVJ_JOURNAL_H
#define NVJ_JOURNAL_H

#include "../include/nvjournal.h"
#include "atomic.h"
#include "compiler.h"
#include "format.h"
#include "lock.h"

/* Counters are kept for so many processors; more share them. */
#define NVJ_CPUS 64u
/* Transactions whose handles are counted apart: a power of two, as many as are ever alive. */
#define NVJ_SLOTS 4u
/* The most transactions that commit together: with the third, new handles wait. */
#define NVJ_GROUP 3u
/* A wait that should have been woken looks again after this. */
#define NVJ_SAFETY_NS UINT64_C(10000000)
/* What a record may exceed its handle's credits by, if its lines change under it (log.c). */
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

/* n mod by. The quotient by the reciprocal is right or one too small. */
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

/* Memory for one block's content. Neighbours are often blocks of different processors. */
struct nvj_image {
	NVJ_ALONE struct nvj_image *next;
	uint8_t *bytes;      /* NVJ_BLOCK_BYTES */
	uint64_t tid;        /* the transaction whose records made it so; 0: none did */
	uint64_t revoked_by; /* once this transaction is sealed it goes home no more; 0: none */
	bool writing;        /* under way to its home: may neither change nor go */
};

#define NVJ_NO_BLOCK (~UINT64_C(0))

/*
 * A block that is not all at home, or that was used lately. Entries are never
 * given back before nvj_close, only used again for another block: so a search
 * needs no lock. All fields but number, next and the two tids are under lock.
 */
struct nvj_block {
	NVJ_ALONE uint64_t number; /* atomic; NVJ_NO_BLOCK: free */
	struct nvj_block *next;    /* atomic: in its bucket */
	/* Atomic, written under lock: the last one that accessed, created or revoked it. */
	uint64_t newest_tid;
	/* The last one that accessed it and did not revoke it: nothing is left to prepare. */
	uint64_t access_tid;
	struct nvj_lock lock;
	bool created;            /* what is at home does not count: the next record has all lines */
	bool dirty;              /* in the partition's dirty list, or in the hands of a round */
	uint8_t revoked_in;      /* bit n: in the partition's revoked[n] */
	struct nvj_image *image; /* as last logged, or as it was at the first access */
	uint64_t home_tid;       /* of the version at home, if one of ours is */
	/* Counts, atomic to read: of records, and of those that were the first behind a fence. */
	uint32_t records;
	uint32_t batches;
	struct nvj_image *frozen; /* of earlier transactions, not at home; the newest first */
	struct nvj_image *spares; /* for the next freezes */
	struct nvj_block *dirty_next;
	struct nvj_block *revoked_next[NVJ_SLOTS];
	struct nvj_block *clock_next; /* all entries of the partition, in a circle */
	struct nvj_block *clock_before;
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
	struct nvj_image *image;
	struct nvj_home_write *next;
};

/* Writes home, of one thread at a time, on the platform's queue of that number. */
struct nvj_home_queue {
	unsigned number;
	unsigned under_way;
	struct nvj_partition *round; /* whose list the blocks are from; NULL: nvj_bring_home's */
	struct nvj_home_write writes[NVJ_QUEUE_DEPTH];
	struct nvj_home_write *free_writes;
};

struct nvj_partition {
	/* Atomic: the position of the next record. */
	NVJ_ALONE uint64_t head;

	/* Read by all who log, written by a checkpoint. */
	NVJ_ALONE uint8_t *lines; /* of the ring, in the region */
	/*
	 * For each line of the ring, atomic: position << 8 | lines of the record
	 * that begins there and is persistent. At nvj_flag_at.
	 */
	uint64_t *flags;
	struct nvj_bucket *buckets;
	unsigned bucket_shift; /* of a number times NVJ_HASH */
	unsigned index;
	/* Atomic positions: look at the next two from here on, ... */
	uint64_t alarm;
	uint64_t half;  /* checkpoint should begin */
	uint64_t limit; /* handles wait */
	uint64_t end;   /* what is needed would be written over: never reached */

	/* Atomic: all records before it are flagged. See flags.c. */
	NVJ_ALONE uint64_t last_check;

	/* For all from here to slabs. */
	NVJ_ALONE struct nvj_lock list_lock;
	struct nvj_block *dirty;
	struct nvj_block *revoked[NVJ_SLOTS];
	struct nvj_image *free_images;
	struct nvj_image *bare_images; /* free ones without memory */
	uint64_t images;               /* atomic to read: with memory */
	struct nvj_block *free_blocks;
	struct nvj_block *clock; /* the hand */
	uint64_t blocks;         /* atomic to read: entries in the circle */
	uint64_t most_blocks;    /* entries that may stay though they are clean */
	uint64_t records;        /* atomic: of entries that are another block's now */
	uint64_t batches;
	struct nvj_slab *slabs;

	/* Of whoever has claimed the partition in a round. */
	NVJ_ALONE uint64_t claimed; /* atomic: the last round that somebody claimed it for */
	struct nvj_home_queue home;
};

/* --- The journal ---------------------------------------------------------- */

/*
 * What a processor counts, in lines of its own. Each is atomic but ended_here. A
 * handle adds 1 to begun as it starts and to ended as it stops, and its credits,
 * shifted, in the same addition. They run over in time: only what is begun less
 * what is ended is a number.
 */
#define NVJ_CREDIT_SHIFT 32

struct nvj_cpu {
	NVJ_ALONE uint64_t begun[NVJ_SLOTS];
	uint64_t ended_here[NVJ_SLOTS]; /* by platform.add_here, and by nothing else */
	uint64_t ended[NVJ_SLOTS];      /* the others */
	NVJ_ALONE uint64_t quota;       /* credits that the handles begun here may have together */
	uint64_t reserved;  /* atomic: 1 and the credits, shifted, for each reservation */
	uint64_t begun_4g;  /* 2^32 handles in any of begun */
	uint64_t not_begun; /* of these, that had to stop at once */
	uint64_t zero_lines;
	uint64_t data_records;
	uint64_t revokes;
	uint64_t commits_waited;
};

static inline uint64_t nvj_cpu_ended(const struct nvj_cpu *c, unsigned slot)
{
	return nvj_load_sc(&c->ended_here[slot]) + nvj_load_sc(&c->ended[slot]);
}

/*
 * Handles that are open and reservations, and their credits, shifted. All ended
 * are read before all begun, and what ended began before: it is never less than
 * was open at the moment between. Credits that change sides, to a reservation or
 * from there, are counted twice meanwhile: reserved is read between, so never
 * less, either.
 */
static inline uint64_t nvj_cpu_open(const struct nvj_cpu *c)
{
	uint64_t open = 0;

	for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
		open -= nvj_cpu_ended(c, slot);
	open += nvj_load_sc(&c->reserved);
	for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
		open += nvj_load_sc(&c->begun[slot]);
	return open;
}

/* Bits of hold. Above them, a number that each raise of TIGHT moves on. */
#define NVJ_HOLD_TIGHT 1u   /* a ring is nearly full */
#define NVJ_HOLD_GATE 2u    /* a commit has merged so much that it must come to an end */
#define NVJ_HOLD_ABORTED 4u /* for good */
#define NVJ_HOLD_BITS 255u
#define NVJ_HOLD_RAISE 256u

struct nvj {
	/* Fixed at open. */
	NVJ_ALONE struct nvj_geometry geometry;
	const struct nvj_persistence *persistence;
	struct nvj_partition *partition;
	struct nvj_cpu *cpu; /* NVJ_CPUS */
	uint64_t *lows;      /* at (tid mod commits) * partitions: low of each ring, atomic */
	struct nvj_divisor by_ring;
	struct nvj_divisor by_partitions;
	uint32_t partitions;
	uint32_t max_credits;  /* K */
	uint32_t credit_chunk; /* that a quota takes at once */
	unsigned checkpoint_percent;
	bool workers;
	struct nvj_platform platform;

	/* Read by each handle, written by a commit: one line. Atomic. */
	NVJ_ALONE uint64_t running;
	uint64_t closing;  /* the transaction whose handles are waited for; 0: none */
	uint64_t merge_to; /* the transaction that this one must be committed together with */
	/* At tid mod NVJ_SLOTS: tid, once a handle of it has logged a record. */
	uint64_t dirty[NVJ_SLOTS];

	/* The same, written more seldom. */
	NVJ_ALONE uint32_t hold;
	int aborted;              /* the error */
	uint32_t cpus;            /* processors above this have not begun any handle */
	uint32_t wanted;          /* a checkpoint */
	struct nvj_bell drained;  /* for the leader: a handle of the closing transaction ended */
	struct nvj_bell credited; /* for who waits for credits */
	/*
	 * While GATE is shut: the last transaction of the group; and the same for
	 * as long as who has a reservation may still begin a handle in it, else 0.
	 */
	uint64_t gate_tid;
	uint64_t joinable;

	/* Commit: written by the leader, and looked at by who follows him. One line. */
	NVJ_ALONE uint64_t sealed; /* atomic: the last one whose seal is persistent */
	uint64_t committed;        /* atomic: of these, what nvj_commit has returned for */
	uint32_t leading;          /* atomic: there is a leader */
	struct nvj_bell followers;
	uint64_t transactions; /* counts, atomic to read */
	uint64_t merged;
	NVJ_ALONE struct nvj_commit_buffer record[NVJ_GROUP]; /* the leader's */

	/* Checkpoint. */
	NVJ_ALONE uint64_t tail; /* atomic */
	struct nvj_bell written; /* for who waits for a write of a block to end */
	uint64_t round;          /* atomic: its number */
	uint64_t round_target;
	uint32_t round_active; /* atomic */
	uint32_t round_left;   /* atomic: partitions not yet done */
	uint32_t stopping;     /* atomic: workers shall return */
	struct nvj_bell round_ended;
	struct nvj_bell work; /* for workers */
	struct nvj_lock brought_lock;
	struct nvj_home_queue brought; /* nvj_bring_home's */

	NVJ_ALONE uint64_t credits;  /* atomic: what no processor's pool has */
	struct nvj_lock credit_lock; /* one at a time searches all pools */

	/* Counts, atomic. */
	NVJ_ALONE uint64_t fences; /* of tails and the anchor */
	uint64_t start_waits;
	uint64_t start_wait_ns;
	uint64_t frozen;
	uint64_t checkpoints;
	uint64_t blocks_home;
	uint32_t shrinks;                        /* each begins at another partition */
	uint64_t first_line[NVJ_MAX_PARTITIONS]; /* head at open */
};

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

/* journal.c: stops everything; block is what failed, or NVJ_NO_BLOCK. */
void nvj_abort_at(struct nvj *j, int error, uint64_t block);

/* credits.c */
/* The handles begun here have no more credits than they may. */
static inline bool nvj_credits_fit(const struct nvj_cpu *c)
{
	return nvj_cpu_open(c) >> NVJ_CREDIT_SHIFT <= nvj_load_sc(&c->quota);
}
/* Under credit_lock: sees to it that credits more fit; false: there are not so many now. */
bool nvj_credits_collect(struct nvj *j, unsigned cpu, uint64_t credits);
/* The same, and waits for them. 0 or NVJ_EROFS. */
int nvj_credits_find(struct nvj *j, unsigned cpu, uint64_t credits);

/* room.c */
/* A ring's head is beyond its alarm. NVJ_EROFS: what is needed would have been written over. */
int nvj_room_alarm(struct nvj *j, struct nvj_partition *p, uint64_t head);
/* The tail is at a transaction with these lows: how far the rings may be filled. */
void nvj_room_moved(struct nvj *j, const uint64_t *lows);
/* TIGHT goes if no ring is beyond its limit. */
void nvj_room_review(struct nvj *j);
/* Waits until hold may differ from what it was; makes room himself if there is no worker. */
void nvj_room_wait(struct nvj *j, uint32_t hold);
/* A checkpoint should be preceded by a commit: what fills a ring is not committed. */
bool nvj_room_wants_commit(struct nvj *j);

/* handle.c */
/* Counts the handle in, with its credits, into the running transaction, which it returns. */
uint64_t nvj_count_in(struct nvj *j, unsigned cpu, uint64_t credits);
/* One more in transaction tid, whether it takes any or not. */
void nvj_count_begun(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits);
void nvj_count_out(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits);
/* The same for a handle that could not begin. */
void nvj_count_back(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits);
/* No handle of the transaction is open. */
bool nvj_handles_ended(struct nvj *j, uint64_t tid);
/* How long to sleep on a bell that handles ring as they end: see nvj_count_out. */
uint64_t nvj_ended_bell_ns(const struct nvj *j);
/* Fences, and flags what the handle has logged. */
void nvj_handle_flag(struct nvj_handle *h);

/* flags.c */
/*
 * The flag of the record at a position. Those of 64 lines lie in 8 lines of memory,
 * neighbours in different ones, as records one after the other are often of
 * different processors.
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
	/* Release, behind the fence: who sees the flag may count on the record. */
	nvj_store_release(nvj_flag_at(j, p, position), position << 8 | lines);
}
/* Moves last_check on, to `to` at most or a little more; true: it is there. */
bool nvj_flags_follow(struct nvj *j, struct nvj_partition *p, uint64_t to);

/* block.c */
#define NVJ_HASH UINT64_C(0x9e3779b97f4a7c15)
/* The block's entry, not locked: it may be another's by now, unless it is accessed. */
struct nvj_block *nvj_block_find(struct nvj *j, struct nvj_partition *p, uint64_t number);
/* The block's entry, locked; NULL: it has none. */
struct nvj_block *nvj_block_lock(struct nvj *j, struct nvj_partition *p, uint64_t number);
/* The same, and makes one; NULL: no memory. */
struct nvj_block *nvj_block_make(struct nvj *j, struct nvj_partition *p, uint64_t number);
/*
 * Under list_lock: evicts up to `most` clean entries, whose images are free then, and
 * counts each entry that it looks at down from *looks. Waits for no lock.
 */
uint64_t nvj_blocks_evict(struct nvj *j, struct nvj_partition *p, uint64_t most, uint64_t *looks);
/* Under the block's lock: into the dirty list, unless it is there. */
void nvj_block_dirty(struct nvj *j, struct nvj_partition *p, struct nvj_block *b);
static inline void nvj_block_unlock(struct nvj *j, struct nvj_block *b)
{
	nvj_unlock(&b->lock, &j->platform);
}

/* image.c */
/* Memory that is kept until the journal closes. */
struct nvj_slab {
	struct nvj_slab *next;
	size_t bytes;             /* of this, itself included */
	struct nvj_image *images; /* NULL: none */
	unsigned image_count;
};
struct nvj_image *nvj_image_take(struct nvj *j, struct nvj_partition *p);
void nvj_image_give(struct nvj *j, struct nvj_partition *p, struct nvj_image *image);
/* A zeroed allocation. The caller notes it in the partition's slabs. */
struct nvj_slab *nvj_slab_make(struct nvj *j, size_t bytes);
void nvj_slabs_release(struct nvj *j, struct nvj_partition *p);
/* Under the block's lock: gives what is frozen and needed no more. */
void nvj_frozen_trim(struct nvj *j, struct nvj_partition *p, struct nvj_block *b);
static inline bool nvj_image_is_dead(struct nvj *j, const struct nvj_image *image)
{
	return image->revoked_by && image->revoked_by <= nvj_load_sc(&j->sealed);
}

/* log.c */
/*
 * Copies the lines of mask from the caller's memory into the block's image, and
 * reserves lines in the ring for a record of them, which the handle keeps or
 * writes. Under the block's lock.
 */
int nvj_record_log(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		   enum nvj_record_kind kind, uint64_t mask, const void *caller);
/* Writes the records into the ring that the handle keeps; does not fence. */
void nvj_handle_write(struct nvj_handle *h);

/* commit.c: nvj_commit, without a checkpoint after it. */
int nvj_commit_to(struct nvj *j, uint64_t tid);
/* Commits the running transaction even if nothing was logged in it: for room. */
int nvj_commit_running(struct nvj *j);

/* revoke.c: transaction tid is sealed; returns when no revoked version is under way home. */
void nvj_revokes_seal(struct nvj *j, uint64_t tid);

/* home.c */
void nvj_home_queue_init(struct nvj_home_queue *q, unsigned number, struct nvj_partition *round);
/* The partition's part of a round. */
void nvj_home_write_partition(struct nvj *j, struct nvj_partition *p);
/* Under the block's lock, which it gives away meanwhile: waits until such is no longer so. */
void nvj_home_await(struct nvj *j, struct nvj_block *b,
		    bool (*such)(struct nvj *j, const struct nvj_block *b));

/* checkpoint.c */
/* Returns when the tail is at goal or beyond, which is committed. */
int nvj_checkpoint_to(struct nvj *j, uint64_t goal);
/* A commit if that is needed for it, and a checkpoint. */
int nvj_checkpoint_wanted(struct nvj *j);

#endif
