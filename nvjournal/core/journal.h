/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The engine: what its files call of each other. state.h has the journal in memory, with
 * partition.h and block.h. Each file has one part of the work:
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

#include "state.h"

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
