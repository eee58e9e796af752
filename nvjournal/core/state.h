/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What an open journal is in memory: its counters of processors, and struct nvj.
 */
#ifndef NVJ_STATE_H
#define NVJ_STATE_H

#include "atomic.h"
#include "divisor.h"
#include "format.h"
#include "partition.h"

/* Counters exist for so many processors. Further processors share them. */
#define NVJ_CPUS 64u

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

#endif
