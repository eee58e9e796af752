// SPDX-License-Identifier: GPL-2.0
/* A journal from mount to umount. */
#include <linux/sched/mm.h>

#include "journal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

static void destroy_caches(void)
{
	kmem_cache_destroy(nvjk_handle_cache);
	kmem_cache_destroy(nvjk_buffer_cache);
	kmem_cache_destroy(nvjk_inode_cache);
}

/*
 * A cache with a constructor is not cleared at each allocation, as Debian's
 * kernels do by default (init_on_alloc). A handle has room for 2 KiB of records,
 * and is set up by make_handle and nvj_start.
 */
static void construct_handle(void *handle)
{
}

int __init nvjk_jbd2_init(void)
{
	nvjk_handle_cache = kmem_cache_create("jbd2nvj_handle", sizeof(struct nvjk_handle),
					      __alignof__(struct nvjk_handle), 0, construct_handle);
	nvjk_buffer_cache = kmem_cache_create("jbd2nvj_buffer", sizeof(struct nvjk_buffer),
					      __alignof__(struct nvjk_buffer), 0, NULL);
	nvjk_inode_cache = kmem_cache_create("jbd2nvj_inode", sizeof(struct jbd2_inode),
					     __alignof__(struct jbd2_inode), 0, NULL);
	if (nvjk_handle_cache && nvjk_buffer_cache && nvjk_inode_cache && !nvjk_bound_init())
		return 0;
	destroy_caches();
	return -ENOMEM;
}

void nvjk_jbd2_exit(void)
{
	nvjk_bound_exit();
	nvjk_handles_exit();
	/* Until the buffers that were let go of are freed (pin.c). */
	rcu_barrier();
	destroy_caches();
}

static void free_journal(struct nvjk_journal *j)
{
	free_percpu(j->reserved);
	kvfree(j);
}

static struct nvjk_journal *make_journal(struct super_block *sb)
{
	struct nvjk_journal *j = kvzalloc(sizeof(*j), GFP_KERNEL);

	if (!j)
		return NULL;
	j->reserved = alloc_percpu(int);
	if (!j->reserved) {
		free_journal(j);
		return NULL;
	}
	strscpy(j->name, sb->s_id, sizeof(j->name));
	mutex_init(&j->one_lock_mutex);
	mutex_init(&j->callback_mutex);
	spin_lock_init(&j->list_lock);
	INIT_LIST_HEAD(&j->data_inodes);
	nvjk_updates_init(j);
	init_waitqueue_head(&j->reserved_wait);
	init_waitqueue_head(&j->thread_wait);
	nvjk_transactions_init(j);
	nvjk_pins_init(j);
	rwlock_init(&j->journal.j_state_lock);
	j->journal.j_blocksize = NVJ_BLOCK_BYTES;
	j->journal.j_dev = j->journal.j_fs_dev = sb->s_bdev;
	j->journal.j_private = sb;
	j->journal.j_commit_interval = HZ * JBD2_DEFAULT_MAX_COMMIT_AGE;
	return j;
}

static void take_options(struct nvjk_journal *j, const struct nvjk_journal_options *options)
{
	j->mask = options->whole_blocks ? NVJ_ALL_LINES : NVJ_COMPARE;
	j->one_lock = options->one_lock ? &j->one_lock_mutex : NULL;
	j->later = !options->log_at_handle && !options->one_lock && !options->whole_blocks;
	j->always_flush = options->always_flush;
	/* Earlier writes are unknown, so the first commit flushes. */
	atomic64_set(&j->data_writes, 1);
	j->journal.j_inode = options->inner;
	j->journal.j_total_len = options->inner_blocks;
}

void jbd2_journal_barrier_changed(journal_t *journal)
{
	nvjk_disk_no_flush(nvjk_of(journal)->disk, !(journal->j_flags & JBD2_BARRIER));
}

/*
 * At most so many blocks wait for their commit, which has to log them all:
 * about a millisecond of work.
 */
#define MOST_LATER_BLOCKS 512u
/* For fewer than this no commit is requested. */
#define LEAST_LATER_BLOCKS 64u

/* A fourth of the credits, unless handles then had too few. */
static int allow_later(struct nvjk_journal *j)
{
	u32 most = nvj_max_credits(j->nvj), least = NVJK_LEAST_HANDLE_BLOCKS * NVJ_BLOCK_CREDITS;

	if (!j->later)
		return 0;
	if (most > least)
		most = min3(most / 4, most - least, MOST_LATER_BLOCKS * NVJ_BLOCK_CREDITS);
	else
		most = 0;
	j->later_commits = most >= LEAST_LATER_BLOCKS * NVJ_BLOCK_CREDITS;
	return nvj_allow_later(j->nvj, most);
}

static void logged_later(void *context, u64 tid, u64 block, u32 lines)
{
	struct nvjk_journal *j = context;

	trace_jbd2nvj_logged_later(j->journal.j_fs_dev->bd_dev, tid, block, lines);
}

static void trace_write(void *context, u64 block, struct bio *bio)
{
	struct nvjk_journal *j = context;

	trace_jbd2nvj_write_home(j->journal.j_fs_dev->bd_dev, block, bio);
}

static int open_engine(struct nvjk_journal *j, const struct nvjk_journal_options *options)
{
	const struct nvjk_disk_hooks hooks = {
		.context = j,
		.before_commit = nvjk_before_commit,
		.aborted = nvjk_aborted,
		.writes = trace_write,
		.logged_later = logged_later,
	};
	struct nvj_options engine = {
		.recover_with = nvjk_run,
		.workers = true,
	};
	int error;

	error = nvjk_disk_open(&j->disk, j->journal.j_fs_dev, &hooks);
	if (error)
		return error;
	memcpy(engine.disk_uuid, options->disk_uuid, sizeof(engine.disk_uuid));
	if (options->mark_block)
		error = nvjk_disk_mark_at(j->disk, options->mark_block, options->uuid);
	if (!error)
		error = nvj_open(&j->nvj, nvjk_region(j->region), nvjk_disk_platform(j->disk),
				 &engine, NULL);
	if (error) {
		nvjk_disk_close(j->disk);
		return error;
	}
	error = allow_later(j);
	if (error) {
		nvj_abandon(j->nvj);
		nvjk_disk_close(j->disk);
		return error;
	}
	nvjk_disk_end_recovery(j->disk);
	j->max_credits = nvj_max_credits(j->nvj);
	j->most_blocks = max(j->max_credits / NVJ_BLOCK_CREDITS, NVJK_MOST_HANDLE_BLOCKS);
	j->newest = j->called_back = j->data_tid = nvj_committed(j->nvj);
	j->journal.j_commit_sequence = (tid_t)j->newest;
	return 0;
}

static int start_threads(struct nvjk_journal *j)
{
	struct nvj_statistics statistics;
	int error;

	if (j->max_credits < NVJK_LEAST_HANDLE_BLOCKS * NVJ_BLOCK_CREDITS)
		return -EFBIG;
	nvj_statistics(j->nvj, &statistics);
	error = nvjk_workers_start(&j->workers, j->nvj, statistics.partitions, j->name);
	if (error)
		return error;
	error = nvjk_thread_start(j);
	if (error) {
		nvjk_workers_stop(j->workers);
		return error;
	}
	error = nvjk_shrinker_start(&j->shrinker, j->nvj, j->name);
	if (error) {
		nvjk_thread_stop(j);
		nvjk_workers_stop(j->workers);
	}
	return error;
}

journal_t *nvjk_journal_open(struct super_block *sb, struct nvjk_region *region,
			     const struct nvjk_journal_options *options)
{
	struct nvjk_journal *j;
	int error;

	if (sb->s_blocksize != NVJ_BLOCK_BYTES)
		return ERR_PTR(-EINVAL);
	j = make_journal(sb);
	if (!j)
		return ERR_PTR(-ENOMEM);
	j->region = region;
	take_options(j, options);
	error = open_engine(j, options);
	if (error)
		goto no_engine;
	error = start_threads(j);
	if (error)
		goto no_threads;
	nvjk_bound_join(j);
	nvjk_region_on_failure(region, nvjk_memory_failed, j);
	return &j->journal;

no_threads:
	nvj_abandon(j->nvj);
	nvjk_disk_close(j->disk);
no_engine:
	free_journal(j);
	return ERR_PTR(error);
}

/*
 * Commits everything and writes it home, unless the journal was aborted: then
 * the region keeps what is not at home. No handle may be open. Returns 0 or
 * -EIO.
 */
int jbd2_journal_destroy(journal_t *journal)
{
	struct nvjk_journal *j = nvjk_of(journal);
	unsigned int nofs;
	int error;

	nvjk_bound_leave(j);
	nvjk_shrinker_stop(j->shrinker);
	nvjk_thread_stop(j);
	error = jbd2_journal_flush(journal, 0);
	nvjk_region_on_failure(j->region, NULL, NULL);
	nvjk_call_back_all(j);
	nvjk_workers_stop(j->workers);
	nvjk_pins_sweep(j, true);
	nofs = memalloc_nofs_save();
	if (error || WARN_ON_ONCE(nvj_close(j->nvj) == NVJ_EBUSY))
		nvj_abandon(j->nvj);
	memalloc_nofs_restore(nofs);
	nvjk_disk_close(j->disk);
	iput(journal->j_inode);
	free_journal(j);
	return error;
}
