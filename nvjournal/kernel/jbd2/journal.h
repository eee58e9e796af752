/* SPDX-License-Identifier: GPL-2.0 */
/*
 * jbd2's interface, implemented with the engine (nvjournal/core):
 *
 * 	journal.c	open, destroy
 * 	abort.c		errors, features
 * 	transaction.c	data of the live transactions
 * 	handle.c	start, stop, extend, restart; reserve.c: reserved handles
 * 	note.c		dirty: the buffers that a handle has changed, and their logging
 * 	buffer.c	access, create, revoke, forget
 * 	pin.c		keeps buffers in memory until they are at home
 * 	data.c		buffers of files' pages
 * 	ordered.c	writes file data before a commit
 * 	commit.c	commits, and what follows them; thread.c: the commit thread
 * 	updates.c	holds back all handles; updates.h: what a handle does for that
 * 	statistics.c	counters
 * 	trace.h		tracepoints
 *
 * First comes what ext4/ needs, then what only the files here use. Errors are
 * negative errnos.
 */
#ifndef NVJK_JOURNAL_H
#define NVJK_JOURNAL_H

#include <linux/fs.h>
#include <linux/version.h>
#include <linux/jbd2.h>

#include "../../core/known.h"
#include "../mount/mount.h"

/* --- For ext4/ --------------------------------------------------------------- */

/* Slab caches, once for the module. */
int __init nvjk_jbd2_init(void);
void nvjk_jbd2_exit(void);

struct nvjk_journal_options {
	u8 disk_uuid[16];    /* as in struct nvj_options */
	u8 uuid[16];         /* of the region's journal */
	u64 mark_block;      /* of the disk, for the mark of the tail; 0: none */
	bool whole_blocks;   /* records=blocks: each record has all lines of its block */
	bool one_lock;       /* lock=one: one mutex around whatever touches the journal */
	bool log_at_handle;  /* log=handle: see note.c */
	struct inode *inner; /* the journal within the disk; a reference, or NULL */
	unsigned int inner_blocks;
	bool always_flush; /* not all writes of file data are told by jbd2_journal_wrote */
};

/*
 * A handle can have credits for at least so many whole blocks. The reason is a
 * truncate, for which ext4 requests 64 blocks and some more. A region of 2 MiB
 * for each partition is enough.
 */
#define NVJK_LEAST_HANDLE_BLOCKS 112u
/*
 * A handle may request at least so many blocks. ext4's largest requests are
 * smaller. The largest is a resize with at most 1024 reserved blocks of group
 * descriptors, in each of which it changes one line. The others are below 512.
 */
#define NVJK_MOST_HANDLE_BLOCKS 1536u

/*
 * Opens the region's journal for sb, whose block size is 4096. First it
 * recovers the journal through the buffer cache of the disk, so that existing
 * buffers have the recovered content. Then the threads run, and handles can be
 * started. Barriers and commit interval are as ext4_init_journal_params sets
 * them. ERR_PTR: as nvj_open; -EFBIG: the region is too small for ext4's
 * handles. After an error the caller still owns the reference to the inode;
 * otherwise jbd2_journal_destroy releases it. The region must stay open until
 * then.
 */
journal_t *nvjk_journal_open(struct super_block *sb, struct nvjk_region *region,
			     const struct nvjk_journal_options *options);

/* Counters since the journal was opened. */
void nvjk_journal_statistics(journal_t *journal, struct nvjk_statistics *statistics);

/* --- Among these files --------------------------------------------------------- */

/*
 * How many transactions have data here, and of how many before the last one of a commit
 * callbacks may be left when it is written. The next commit closes at most NVJ_GROUP (3)
 * transactions, after which one is running, before it checks again.
 */
#define NVJK_TRANSACTIONS 8u
#define NVJK_LEFT 4u
/* Lists of pinned buffers, by block number. */
#define NVJK_PIN_LISTS 16u

struct nvjk_transaction {
	transaction_t transaction;
	u64 tid; /* written last, with release */
};

struct nvjk_pins {
	spinlock_t lock;
	struct list_head list;
	unsigned long count;
} ____cacheline_aligned_in_smp;

struct nvjk_journal {
	journal_t journal;
	struct nvj *nvj;
	struct nvjk_disk *disk;
	struct nvjk_region *region;
	struct nvjk_workers *workers;
	struct nvjk_shrinker *shrinker;
	char name[BDEVNAME_SIZE];
	u64 mask;               /* of each record: NVJ_COMPARE, or NVJ_ALL_LINES */
	struct mutex *one_lock; /* NULL: there is none */
	struct mutex one_lock_mutex;
	struct nvjk_holds one_lock_holds;
	unsigned int most_blocks; /* that a handle may ask for */
	u32 max_credits;          /* of the engine, for a handle */
	bool later;               /* records may be written later: see note.c */
	bool later_commits;       /* and much that waits is committed */

	/*
	 * updates.c. The thread that holds back all handles has the mutex, and has
	 * set held_back. It waits at ended_wait, and handles wait at updates_wait.
	 */
	u32 held_back;
	struct mutex updates_mutex;
	unsigned int updates_nofs; /* of that thread: memalloc_nofs_save */
	int __percpu *reserved;    /* reserved handles, from their reservation to their end */
	u32 reserved_credits;      /* of those that have not started: see reserve.c */
	wait_queue_head_t reserved_wait;
	wait_queue_head_t ended_wait;
	wait_queue_head_t updates_wait;
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	struct lockdep_map updates_map; /* handles as its readers */
#endif

	u64 newest; /* the newest transaction in which a handle was started */
	struct nvjk_transaction transactions[NVJK_TRANSACTIONS];

	/* Commit. */
	struct mutex callback_mutex;
	u64 called_back; /* written under it: callbacks up to this transaction were made */
	struct task_struct *led_by; /* the last thread that began a commit; only compared */
	spinlock_t list_lock;       /* of data_inodes, and of each inode's i_next fields */
	struct list_head data_inodes;
	u64 data_tid;       /* transactions up to this one have taken theirs; under list_lock */
	u64 flushed_writes; /* of those that have ended, so many are on the disk for good */
	bool always_flush;  /* not all writes are counted */
	wait_queue_head_t thread_wait;
	u64 wanted_tid;        /* the thread shall commit it */
	bool wants_checkpoint; /* and carry home */
	bool stopping;

	struct nvjk_pins pins[NVJK_PIN_LISTS];
	u64 swept_tail;         /* the thread's */
	struct list_head bound; /* bound.c's */

	atomic64_t data_writes; /* that have ended, and one before the first */
	atomic64_t data_flushes;
	atomic64_t data_inodes_done;
};

#define nvjk_of(j) container_of(j, struct nvjk_journal, journal)

/*
 * The data of a buffer, as long as its content is not all at home, and a little
 * longer.
 */
struct nvjk_buffer {
	struct journal_head head;
	/* The bit lock of the buffer protects newest_tid. */
	struct nvj_known known;
	struct mutex lock; /* of its logging and of forgotten */
	bool forgotten;    /* freed: who has noted it must not log it any more */
	bool data;         /* of a file's page: see data.c */
	union {
		struct list_head pin;
		struct rcu_head rcu; /* it was let go of */
	};
};

#define NVJK_NOTES 12u

struct nvjk_handle {
	handle_t handle;
	unsigned int nofs;
	bool counted_reserved; /* in nvjk_journal.reserved, and not held back */
	/*
	 * Buffers that it has changed, from note on and before next. They are
	 * logged when it stops: a handle that is not open has none. At end it needs
	 * more memory.
	 */
	struct nvjk_buffer **note;
	struct nvjk_buffer **next;
	struct nvjk_buffer **end;
	struct nvjk_buffer *first_notes[NVJK_NOTES];
	struct nvj_reserved reserved; /* while it is not started */
	struct nvj_handle nvj;        /* the largest part */
};

#define nvjk_handle_of(h) container_of(h, struct nvjk_handle, handle)

static inline void nvjk_lock_one(struct nvjk_journal *j)
{
	if (unlikely(j->one_lock)) {
		mutex_lock(j->one_lock);
		nvjk_hold_begins(&j->one_lock_holds);
	}
}

static inline void nvjk_unlock_one(struct nvjk_journal *j)
{
	if (unlikely(j->one_lock)) {
		nvjk_hold_ends(&j->one_lock_holds);
		mutex_unlock(j->one_lock);
	}
}

/* transaction.c */
void nvjk_transactions_init(struct nvjk_journal *j);
void nvjk_transaction_begin(struct nvjk_journal *j, struct nvjk_transaction *t, u64 tid);
/* Registers the transaction of a handle that has just started. */
static inline transaction_t *nvjk_transaction_started(struct nvjk_journal *j, u64 tid)
{
	struct nvjk_transaction *t = &j->transactions[tid % NVJK_TRANSACTIONS];

	if (unlikely(smp_load_acquire(&t->tid) != tid))
		nvjk_transaction_begin(j, t, tid);
	return &t->transaction;
}
/* The data of a transaction. NULL: no handle was started in it. */
struct nvjk_transaction *nvjk_transaction_find(struct nvjk_journal *j, u64 tid);
/*
 * The transaction with ext4's number of 32 bits: the nearest one that is not in
 * the future.
 */
u64 nvjk_tid(struct nvjk_journal *j, tid_t tid);

/* note.c */
static inline void nvjk_notes_init(struct nvjk_handle *h)
{
	h->note = h->next = h->first_notes;
	h->end = h->first_notes + NVJK_NOTES;
}
/* The handle has changed the buffer before, and may change it again. */
bool nvjk_noted(const struct nvjk_handle *h, struct buffer_head *bh);
/* The handle has freed the buffer. The caller holds the buffer's lock. */
void nvjk_note_drop(struct nvjk_handle *h, struct nvjk_buffer *b);
/*
 * The engine will log the block for another handle of the same transaction, with
 * the content at the commit. If the block was freed meanwhile, it must not be
 * logged for this handle.
 */
static inline bool nvjk_waits(const struct nvjk_buffer *b, u64 tid)
{
	/* It could wait then. Since then it may have got a trigger. */
	return likely(nvj_known_waits(&b->known, tid) && !b->head.b_triggers);
}
/* Logs a buffer that the handle has changed. If that fails, the journal aborts. */
void nvjk_note_log(struct nvjk_handle *h, struct nvjk_buffer *b);
/* They are logged, and are more than first_notes. */
void nvjk_notes_free(struct nvjk_handle *h);

/* reserve.c */
/*
 * Called before the start of a handle that reserves another one. Waits until so many
 * credits may be reserved. They count until nvjk_reserve_back, which the start and the
 * release of the reserved handle call.
 */
void nvjk_reserve_await(struct nvjk_journal *j, u32 credits);
void nvjk_reserve_back(struct nvjk_journal *j, u32 credits);
/*
 * The handle is open. Some of its credits become those of its reserved handle.
 */
int nvjk_reserve(struct nvjk_handle *handle, struct nvjk_handle *reserved, u32 credits);
/* Called when a reserved handle has ended or was released. */
void nvjk_reserved_ended(struct nvjk_journal *j);
/* Says whether there is one. Meanwhile none is reserved. */
bool nvjk_any_reserved(struct nvjk_journal *j);

/* updates.c */
void nvjk_updates_init(struct nvjk_journal *j);

/* handle.c */
extern struct kmem_cache *nvjk_handle_cache;
void nvjk_handle_free(struct nvjk_handle *h);
void nvjk_handles_exit(void);
void nvjk_handle_started(struct nvjk_handle *h);
u32 nvjk_credits(const struct nvjk_journal *j, int blocks, int revoke_records);

/* pin.c */
extern struct kmem_cache *nvjk_buffer_cache;
void nvjk_pins_init(struct nvjk_journal *j);
/* The data of the buffer, which stay until the tail is at least at tid. */
struct nvjk_buffer *nvjk_pin(struct nvjk_journal *j, struct buffer_head *bh, u64 tid);
/*
 * The data of the buffer, if it has any. They stay as long as a handle that has
 * accessed it is open.
 */
static inline struct nvjk_buffer *nvjk_buffer_of(struct buffer_head *bh)
{
	struct journal_head *jh = buffer_jbd(bh) ? READ_ONCE(bh->b_private) : NULL;

	return jh ? container_of(jh, struct nvjk_buffer, head) : NULL;
}
/*
 * The data of the buffer, if it has any. They stay until nvjk_let_go by the
 * same thread. Only one thread at a time may hold them.
 */
struct nvjk_buffer *nvjk_hold(struct buffer_head *bh);
void nvjk_let_go(struct nvjk_journal *j, struct nvjk_buffer *b);
/*
 * Releases the buffers whose transactions are at home. all: releases all
 * buffers.
 */
void nvjk_pins_sweep(struct nvjk_journal *j, bool all);
/*
 * Releases the buffer if it was pinned. It is at home, and no handle accesses
 * it meanwhile.
 */
void nvjk_unpin(struct nvjk_journal *j, struct buffer_head *bh);
u64 nvjk_pins_count(struct nvjk_journal *j);

/* bound.c */
int nvjk_bound_init(void);
void nvjk_bound_exit(void);
/* After this the journal's thread runs, until it leaves. */
void nvjk_bound_join(struct nvjk_journal *j);
void nvjk_bound_leave(struct nvjk_journal *j);
/*
 * How many buffers all journals together may pin, and how many they have
 * pinned.
 */
u64 nvjk_bound(void);
u64 nvjk_bound_count(void);
void nvjk_bound_add(long buffers);
/* Asks all journals for a checkpoint if they have pinned more. */
void nvjk_bound_check(void);

/* data.c */
bool nvjk_is_data(const struct buffer_head *bh);
void nvjk_data_put(struct buffer_head *bh);

/* ordered.c */
extern struct kmem_cache *nvjk_inode_cache;
int nvjk_ordered_before_commit(struct nvjk_journal *j, u64 tid);
/* Makes all earlier writes to the disk persistent, if barriers are on. */
int nvjk_flush_data(struct nvjk_journal *j);

/* commit.c */
/* Commits transaction tid, or all. No handle may be open. Returns 0 or -EIO. */
int nvjk_commit(struct nvjk_journal *j, u64 tid);
/* Called by the engine before it commits tid. */
int nvjk_before_commit(void *context, u64 tid);
void nvjk_call_back(struct nvjk_journal *j);
/* Runs all remaining callbacks. The journal has ended, perhaps by an abort. */
void nvjk_call_back_all(struct nvjk_journal *j);

/* thread.c */
int nvjk_thread_start(struct nvjk_journal *j);
void nvjk_thread_stop(struct nvjk_journal *j);
void nvjk_thread_commit(struct nvjk_journal *j, u64 tid);
/* A handle has added to what waits for the commit. */
void nvjk_thread_check(struct nvjk_journal *j);
void nvjk_thread_checkpoint(struct nvjk_journal *j);

/* abort.c */
void nvjk_aborted(void *context, int error, u64 block);
/* Called when the kernel reports that memory of the region fails. */
void nvjk_memory_failed(void *context, u64 offset);
/* -EIO: the region has known bad blocks. */
int nvjk_check_memory(struct nvjk_journal *j);

#include "updates.h"

#endif
