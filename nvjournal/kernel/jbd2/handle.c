// SPDX-License-Identifier: GPL-2.0
/*
 * Start and stop of a handle. The usual path takes no lock of the journal: the
 * read side of updates, and the engine's count of handles, are per processor.
 */
#include <linux/sched/mm.h>

#include "journal.h"
#include "trace.h"

struct kmem_cache *nvjk_handle_cache;
/*
 * The last handle that ended on each processor, for the next one: that costs less
 * than the cache does.
 */
static DEFINE_PER_CPU(struct nvjk_handle *, spare_handle);

static struct nvjk_handle *allocate(void)
{
	struct nvjk_handle *h = this_cpu_xchg(spare_handle, NULL);

	return likely(h) ? h : kmem_cache_alloc(nvjk_handle_cache, GFP_NOFS);
}

void nvjk_handle_free(struct nvjk_handle *h)
{
	if (unlikely(this_cpu_cmpxchg(spare_handle, NULL, h)))
		kmem_cache_free(nvjk_handle_cache, h);
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

static inline struct nvjk_handle *make_handle(journal_t *journal, int blocks, int revoke_records)
{
	struct nvjk_handle *h = allocate();

	if (!h)
		return NULL;
	/*
	 * nvj_start initializes the engine's part, which is the largest. Field by
	 * field: the compiler would clear the whole structure first.
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
	h->handle.h_type = h->handle.h_line_no = 0;
	h->handle.h_start_jiffies = 0;
	h->counted_reserved = false;
	nvjk_notes_init(h);
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

/* As a reader of updates, unless the handle was reserved. */
static int begin(struct nvjk_handle *h, u32 credits)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	int error;

	if (!h->counted_reserved)
		percpu_down_read(&j->updates);
	error = nvj_start(j->nvj, &h->nvj, credits);
	if (!error)
		started(h);
	else if (!h->counted_reserved)
		percpu_up_read(&j->updates);
	return error;
}

/* Returns the transaction to commit for its changes. */
static u64 end(struct nvjk_handle *h)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	unsigned int dirtied = h->notes;
	u64 tid;

	nvjk_notes_log(h);
	trace_jbd2nvj_handle_stats(j->journal.j_fs_dev->bd_dev, h->nvj.tid, &h->handle, dirtied,
				   h->nvj.taken - h->nvj.credits - h->nvj.later);
	nvjk_lock_one(j);
	tid = nvj_stop(&h->nvj);
	nvjk_unlock_one(j);
	if (h->nvj.later && j->later_commits)
		nvjk_thread_check(j);
	h->handle.h_transaction = NULL;
	if (!h->counted_reserved)
		percpu_up_read(&j->updates);
	return tid;
}

/*
 * More than any handle may request: an error of ext4, or the region is too
 * small.
 */
static bool too_many(struct nvjk_journal *j, int blocks)
{
	if (likely(blocks >= 0 && (unsigned int)blocks <= j->most_blocks))
		return false;
	pr_err_ratelimited("EXT4NVJ-fs (%s): a handle wants %d blocks, and may have %u in this "
			   "region: use a larger one or fewer partitions\n",
			   j->name, blocks, j->most_blocks);
	return true;
}

static int begin_with(struct nvjk_handle *h, struct nvjk_handle *reserved, int blocks,
		      int rsv_blocks, int revoke_records)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	u32 credits = nvjk_credits(j, blocks, revoke_records);
	u32 most, rsv_credits;
	int error;

	if (!reserved)
		return begin(h, credits);
	/*
	 * The reserved credits are added, unless the region is too small for
	 * both. They are never more than those of the handle: they are a part
	 * of the sum, or a quarter of the maximum.
	 */
	most = j->max_credits;
	rsv_credits = min(nvjk_credits(j, rsv_blocks, 0), most / 4);
	error = begin(h, min(credits + rsv_credits, most));
	if (error)
		return error;
	error = nvjk_reserve(h, reserved, rsv_credits);
	if (WARN_ON_ONCE(error)) {
		current->journal_info = NULL;
		end(h);
		return error;
	}
	reserved->handle.h_reserved = 1;
	h->handle.h_rsv_handle = &reserved->handle;
	return 0;
}

handle_t *jbd2__journal_start(journal_t *journal, int blocks, int rsv_blocks, int revoke_records,
			      gfp_t gfp, unsigned int type, unsigned int line)
{
	handle_t *handle = journal_current_handle();
	struct nvjk_journal *j;
	struct nvjk_handle *h, *reserved = NULL;
	int error;

	if (unlikely(!journal))
		return ERR_PTR(-EROFS);
	if (handle) {
		J_ASSERT(handle->h_journal == journal);
		handle->h_ref++;
		return handle;
	}
	j = nvjk_of(journal);
	if (is_journal_aborted(journal))
		return ERR_PTR(-EROFS);
	if (too_many(j, blocks + rsv_blocks))
		return ERR_PTR(-ENOSPC);
	h = make_handle(journal, blocks, revoke_records);
	if (unlikely(!h))
		return ERR_PTR(-ENOMEM);
	if (rsv_blocks) {
		reserved = make_handle(journal, rsv_blocks, 0);
		if (!reserved) {
			error = -ENOMEM;
			goto failed;
		}
	}
	h->handle.h_type = type;
	h->handle.h_line_no = line;
	h->nofs = memalloc_nofs_save();
	error = begin_with(h, reserved, blocks, rsv_blocks, revoke_records);
	if (!error)
		return &h->handle;
	memalloc_nofs_restore(h->nofs);
failed:
	if (reserved)
		nvjk_handle_free(reserved);
	nvjk_handle_free(h);
	return ERR_PTR(error);
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

	/* The thread that stops it gets the error. */
	if (is_handle_aborted(handle))
		return 0;
	if (too_many(nvjk_of(handle->h_journal), blocks))
		return -ENOSPC;
	end(h);
	handle->h_requested_credits = blocks;
	handle->h_buffer_credits = blocks;
	handle->h_revoke_credits = revoke_records;
	return begin(h, nvjk_credits(nvjk_of(handle->h_journal), blocks, revoke_records));
}

int jbd2_journal_stop(handle_t *handle)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j = nvjk_of(handle->h_journal);
	int error = is_handle_aborted(handle) ? -EIO : 0;
	bool commit = false;
	u64 tid = 0;

	if (--handle->h_ref > 0)
		return error;
	if (handle->h_transaction) {
		tid = end(h);
		/* An error that occurred when its buffers were logged. */
		if (is_journal_aborted(&j->journal))
			error = -EIO;
		/*
		 * A thread that reclaims memory must not wait for a disk here.
		 */
		commit = handle->h_sync && !error && !(current->flags & PF_MEMALLOC);
	}
	if (handle->h_rsv_handle)
		jbd2_journal_free_reserved(handle->h_rsv_handle);
	if (h->counted_reserved)
		nvjk_reserved_ended(j);
	current->journal_info = NULL;
	memalloc_nofs_restore(h->nofs);
	nvjk_handle_free(h);
	if (commit)
		error = nvjk_commit(j, tid);
	return error;
}
