// SPDX-License-Identifier: GPL-2.0
/*
 * Start and stop of a handle. The usual path takes no lock of the journal: the
 * engine's count of handles is per processor.
 */
#include <linux/sched/mm.h>

#include "journal.h"
#include "trace.h"

struct kmem_cache *nvjk_handle_cache;
/*
 * The last handle that ended on each processor, for the next one: that costs less
 * than the cache does. No interrupt starts or ends a handle.
 */
static DEFINE_PER_CPU(struct nvjk_handle *, spare_handle);

static noinline struct nvjk_handle *allocate_from_cache(void)
{
	struct nvjk_handle *h = kmem_cache_alloc(nvjk_handle_cache, GFP_NOFS);

	if (h)
		nvjk_notes_init(h);
	return h;
}

/* It has no notes. */
static inline struct nvjk_handle *allocate(void)
{
	struct nvjk_handle *h;

	preempt_disable();
	h = __this_cpu_read(spare_handle);
	__this_cpu_write(spare_handle, NULL);
	preempt_enable();
	return likely(h) ? h : allocate_from_cache();
}

static inline void free_handle(struct nvjk_handle *h)
{
	struct nvjk_handle *spare;

	preempt_disable();
	spare = __this_cpu_read(spare_handle);
	__this_cpu_write(spare_handle, h);
	preempt_enable();
	if (unlikely(spare))
		kmem_cache_free(nvjk_handle_cache, spare);
}

void nvjk_handle_free(struct nvjk_handle *h)
{
	free_handle(h);
}

static void free_spare(struct nvjk_handle *h)
{
	if (h)
		kmem_cache_free(nvjk_handle_cache, h);
}

/* No handle is open. */
void nvjk_handles_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu) free_spare(per_cpu(spare_handle, cpu));
}

/*
 * The credits for a handle that changes all lines of all its blocks, but at
 * most what a handle can have: in a small region that is less. ext4 requests
 * dozens of blocks for the worst case, and then changes a few lines of each. If
 * a handle ever logs more than its credits, the journal aborts before anything
 * of it is committed.
 */
u32 nvjk_credits(const struct nvjk_journal *j, int blocks, int revoke_records)
{
	return min((u32)blocks * NVJ_BLOCK_CREDITS + (u32)revoke_records, j->max_credits);
}

static __always_inline struct nvjk_handle *make_handle(journal_t *journal, int blocks,
						       int revoke_records, unsigned int type,
						       unsigned int line)
{
	struct nvjk_handle *h = allocate();

	if (unlikely(!h))
		return NULL;
	/*
	 * The engine initializes its part. Field by field: the compiler would clear
	 * the whole structure first.
	 */
	h->handle.h_transaction = NULL;
	h->handle.h_journal = journal;
	h->handle.h_rsv_handle = NULL;
	h->handle.h_ref = 1;
	h->handle.h_err = 0;
	h->handle.h_buffer_credits = blocks;
	h->handle.h_revoke_credits = revoke_records;
	h->handle.h_requested_credits = blocks;
	h->handle.h_sync = h->handle.h_reserved = h->handle.h_aborted = 0;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
	h->handle.h_invalid = 0;
#endif
	h->handle.h_type = type;
	h->handle.h_line_no = line;
	h->counted_reserved = false;
	return h;
}

static inline void started(struct nvjk_handle *h)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);

	h->handle.h_start_jiffies = jiffies;
	h->handle.h_transaction = nvjk_transaction_started(j, h->nvj.tid);
	current->journal_info = &h->handle;
	trace_jbd2nvj_handle_start(j->journal.j_fs_dev->bd_dev, h->nvj.tid, &h->handle);
}

void nvjk_handle_started(struct nvjk_handle *h)
{
	started(h);
}

/*
 * A handle that was reserved is not held back (updates.c). Inlined, as end is: a handle
 * starts and stops with few calls, each of which saves registers.
 */
static __always_inline int begin(struct nvjk_handle *h, u32 credits, bool was_reserved)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	int error;

	/* Only a kernel that detects faults has these. */
	__might_sleep(__FILE__, __LINE__);
	if (!was_reserved)
		rwsem_acquire_read(&j->updates_map, 0, 0, _THIS_IP_);
	error = nvjk_updates_start(j, h, credits, was_reserved);
	if (likely(!error))
		started(h);
	else if (!was_reserved)
		rwsem_release(&j->updates_map, _THIS_IP_);
	return error;
}

/* Logs what the handle has changed. If that fails, the journal aborts. */
static __always_inline void log_notes(struct nvjk_journal *j, struct nvjk_handle *h, u64 tid)
{
	struct nvjk_buffer **note, **next = h->next;
	u64 newest;

	/* Between this handle's changes and nvj_known_waits. */
	smp_mb();
	for (note = h->note; note != next; note++)
		if (!nvjk_waits(*note, tid))
			nvjk_note_log(h, *note);
	if (unlikely(h->note != h->first_notes))
		nvjk_notes_free(h);
	h->next = h->first_notes;
	/*
	 * In jbd2 no handle starts while a handle of the previous transaction
	 * is open. Here that is possible, and ext4 keeps much state outside of
	 * blocks. For example, such a handle has changed the size and block
	 * count of a file in memory, and this handle has logged them with the
	 * inode. So both commit together.
	 */
	newest = READ_ONCE(j->newest);
	if (unlikely(newest > tid))
		nvj_merge(&h->nvj, newest);
}

/* Returns the transaction to commit for its changes. */
static __always_inline u64 end(struct nvjk_handle *h)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	unsigned int dirtied = h->next - h->note;
	u64 tid = h->nvj.tid;

	log_notes(j, h, tid);
	trace_jbd2nvj_handle_stats(j->journal.j_fs_dev->bd_dev, tid, &h->handle, dirtied,
				   h->nvj.taken - h->nvj.credits - h->nvj.later);
	nvjk_lock_one(j);
	tid = nvj_stop(&h->nvj);
	nvjk_unlock_one(j);
	if (h->nvj.later && j->later_commits)
		nvjk_thread_check(j);
	nvjk_updates_ended(j);
	if (!h->counted_reserved)
		rwsem_release(&j->updates_map, _THIS_IP_);
	return tid;
}

/*
 * More than any handle may request: an error of ext4, or the region is too
 * small.
 */
static noinline bool say_too_many(struct nvjk_journal *j, int blocks)
{
	pr_err_ratelimited("EXT4NVJ-fs (%s): a handle wants %d blocks, and may have %u in this "
			   "region: use a larger one or fewer partitions\n",
			   j->name, blocks, j->most_blocks);
	return true;
}

static inline bool too_many(struct nvjk_journal *j, int blocks)
{
	/* A negative number is more than any. */
	return unlikely((unsigned int)blocks > j->most_blocks) && say_too_many(j, blocks);
}

/* A handle that has not started. */
static noinline handle_t *fail(struct nvjk_handle *h, int error)
{
	memalloc_nofs_restore(h->nofs);
	nvjk_handle_free(h);
	return ERR_PTR(error);
}

/* The handle has no credits yet. */
static noinline handle_t *start_with_reserved(struct nvjk_handle *h, int rsv_blocks)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	u32 most = j->max_credits;
	u32 credits = nvjk_credits(j, h->handle.h_buffer_credits, h->handle.h_revoke_credits);
	/*
	 * The reserved credits are added, unless the region is too small for
	 * both. They are never more than those of the handle: they are a part
	 * of the sum, or a quarter of the maximum.
	 */
	u32 rsv_credits = min(nvjk_credits(j, rsv_blocks, 0), most / 4);
	struct nvjk_handle *reserved = make_handle(&j->journal, rsv_blocks, 0, 0, 0);
	int error;

	if (!reserved)
		return fail(h, -ENOMEM);
	nvjk_reserve_await(j, rsv_credits);
	error = begin(h, min(credits + rsv_credits, most), false);
	if (!error) {
		error = nvjk_reserve(h, reserved, rsv_credits);
		if (!WARN_ON_ONCE(error)) {
			reserved->handle.h_reserved = 1;
			h->handle.h_rsv_handle = &reserved->handle;
			return &h->handle;
		}
		current->journal_info = NULL;
		end(h);
	}
	nvjk_reserve_back(j, rsv_credits);
	nvjk_handle_free(reserved);
	return fail(h, error);
}

handle_t *jbd2__journal_start(journal_t *journal, int blocks, int rsv_blocks, int revoke_records,
			      gfp_t gfp, unsigned int type, unsigned int line)
{
	handle_t *handle = journal_current_handle();
	struct nvjk_journal *j;
	struct nvjk_handle *h;
	int error;

	if (unlikely(!journal))
		return ERR_PTR(-EROFS);
	if (handle) {
		J_ASSERT(handle->h_journal == journal);
		handle->h_ref++;
		return handle;
	}
	j = nvjk_of(journal);
	if (unlikely(is_journal_aborted(journal)))
		return ERR_PTR(-EROFS);
	if (too_many(j, blocks + rsv_blocks))
		return ERR_PTR(-ENOSPC);
	h = make_handle(journal, blocks, revoke_records, type, line);
	if (unlikely(!h))
		return ERR_PTR(-ENOMEM);
	h->nofs = memalloc_nofs_save();
	if (unlikely(rsv_blocks))
		return start_with_reserved(h, rsv_blocks);
	error = begin(h, nvjk_credits(j, blocks, revoke_records), false);
	if (unlikely(error))
		return fail(h, error);
	return &h->handle;
}

handle_t *jbd2_journal_start(journal_t *journal, int blocks)
{
	return jbd2__journal_start(journal, blocks, 0, 0, GFP_NOFS, 0, 0);
}

/*
 * Returns 0; 1: there are not enough credits without waiting, restart; -EROFS.
 */
int jbd2_journal_extend(handle_t *handle, int blocks, int revoke_records)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	int error;

	if (is_handle_aborted(handle))
		return -EROFS;
	if (blocks < 0 || revoke_records < 0)
		return -EINVAL;
	error = nvj_extend(&h->nvj,
			   nvjk_credits(nvjk_of(handle->h_journal), blocks, revoke_records));
	if (error == NVJ_EAGAIN || error == NVJ_ENOSPC)
		return 1;
	if (error)
		return error;
	handle->h_buffer_credits += blocks;
	handle->h_requested_credits += blocks;
	handle->h_revoke_credits += revoke_records;
	return 0;
}

/*
 * The changes before this are one operation and those after it another; a crash
 * may come between them. After an error the handle has no transaction, and can
 * only be stopped with jbd2_journal_stop.
 */
int jbd2__journal_restart(handle_t *handle, int blocks, int revoke_records, gfp_t gfp)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	int error;

	/* The thread that stops it gets the error. */
	if (is_handle_aborted(handle))
		return 0;
	if (too_many(nvjk_of(handle->h_journal), blocks))
		return -ENOSPC;
	end(h);
	handle->h_transaction = NULL;
	handle->h_requested_credits = blocks;
	handle->h_buffer_credits = blocks;
	handle->h_revoke_credits = revoke_records;
	error = begin(h, nvjk_credits(nvjk_of(handle->h_journal), blocks, revoke_records),
		      h->counted_reserved);
	if (error)
		handle->h_aborted = 1;
	return error;
}

int jbd2_journal_stop(handle_t *handle)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j = nvjk_of(handle->h_journal);
	bool open = handle->h_transaction;
	bool commit;
	int error;
	u64 tid = 0;

	if (--handle->h_ref > 0)
		return is_handle_aborted(handle) ? -EIO : 0;
	if (likely(open))
		tid = end(h);
	/* Also an error that occurred when its buffers were logged. */
	error = unlikely(is_handle_aborted(handle)) ? -EIO : 0;
	/* A thread that reclaims memory must not wait for a disk here. */
	commit = unlikely(handle->h_sync) && open && !error && !(current->flags & PF_MEMALLOC);
	if (unlikely(handle->h_rsv_handle))
		jbd2_journal_free_reserved(handle->h_rsv_handle);
	if (unlikely(h->counted_reserved))
		nvjk_reserved_ended(j);
	current->journal_info = NULL;
	memalloc_nofs_restore(h->nofs);
	free_handle(h);
	if (unlikely(commit))
		error = nvjk_commit(j, tid);
	return error;
}
