/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Commits: when a transaction commits, how many bytes jbd2 writes for it, and
 * which cgroup forced it.
 */
#ifndef DAYBOOK_COMMITS_H
#define DAYBOOK_COMMITS_H

#include "handles.h"

/*
 * fsync of a file names its cgroup as the forcer until a commit starts or the
 * call returns. The end of sync or syncfs cannot be seen. But the data are
 * written at that time, so the forced commit starts at once. This is how long
 * the cgroup stays named, in nanoseconds.
 */
#define SYNC_FS_NS 1000000000ULL
#define UNTIL_EXIT (~0ULL)

static __noinline int sync_begins(__u32 dev, __u64 expires_ns)
{
	struct filesystem *fs = find_filesystem(dev);

	if (fs)
		name_forcer(fs, cgroup_of(current_task()), expires_ns);
	return 0;
}

/* A kernel thread that syncs a file, as a loop device does, works for its owner. */
static __noinline int thread_syncs(struct inode *inode)
{
	any_thread_syncs = 1;
	work_at(inode, PHASE_WRITEBACK);
	return 0;
}

static __always_inline int sync_file_begins(struct inode *inode)
{
	struct task_struct *task = current_task();
	struct filesystem_place *place;
	struct forcer *forcer;
	__u32 dev;

	if (is_kernel_thread(task))
		thread_syncs(inode);
	dev = inode->i_sb->s_dev;
	place = filesystem_place(dev);
	if (!is_its(place, dev) || place->filesystem.forcer.expires_ns)
		return sync_begins(dev, UNTIL_EXIT);
	forcer = &place->filesystem.forcer;
	forcer->cgroup = cgroup_of(task);
	forcer->expires_ns = UNTIL_EXIT;
	return 0;
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_file, struct file *file)
{
	return file ? sync_file_begins(file->f_inode) : 0;
}

/* Before 6.18 the argument was a dentry. */
SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_dentry, struct dentry *dentry)
{
	return dentry ? sync_file_begins(dentry->d_inode) : 0;
}

SEC("tp_btf/ext4_sync_fs")
int BPF_PROG(sync_fs, struct super_block *sb)
{
	if (!sb)
		return 0;
	return sync_begins(sb->s_dev, bpf_ktime_get_ns() + SYNC_FS_NS);
}

/* The sync of a file ends, perhaps without a commit. */
static __noinline int sync_ends(__u32 dev)
{
	struct filesystem *fs = known_filesystem(dev);

	if (fs && fs->forcer.expires_ns && fs->forcer.cgroup == cgroup_of(current_task()))
		fs->forcer.expires_ns = 0;
	return 0;
}

static __noinline int thread_synced(void)
{
	return work_at(NULL, PHASE_WRITEBACK);
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(sync_file_exit, struct inode *inode)
{
	struct filesystem_place *place;
	__u32 dev;

	if (!inode)
		return 0;
	if (any_thread_syncs)
		thread_synced();
	dev = inode->i_sb->s_dev;
	place = filesystem_place(dev);
	if (is_its(place, dev) && !place->filesystem.forcer.expires_ns)
		return 0; /* a commit has started since this sync was named */
	return sync_ends(dev);
}

/* jbd2 names its threads jbd2/DEVICE-INODE (fs/jbd2/journal.c). */
static __always_inline bool is_committer(struct task_struct *task)
{
	char comm[8] = {};

	if (!is_kernel_thread(task))
		return false;
	bpf_core_read(comm, sizeof(comm), &task->comm);
	return comm[0] == 'j' && comm[1] == 'b' && comm[2] == 'd' && comm[3] == '2' &&
	       comm[4] == '/';
}

/* Says that a bio names its device: since 5.12. */
static __always_inline bool bios_name_device(void)
{
#ifdef UNTYPED_TASK
	return bpf_core_field_exists(((struct bio *)0)->bi_bdev);
#else
	return true; /* with atomic operations, too */
#endif
}

/*
 * Returns the device of the file system that has its journal on a device. On
 * kernels whose bios do not name their device, dev is the process ID of the jbd2
 * thread.
 */
static __always_inline __u32 journaled_by(__u32 dev)
{
	__u32 *of;

	if (!any_external)
		return dev;
	of = bpf_map_lookup_elem(&externals, &dev);
	return of ? *of : dev;
}

/* A function so that most commits, which do not come here, have the registers. */
static __noinline int note_external(struct journal_s *journal, __u32 dev)
{
	__u32 on, *of;

	if (bios_name_device() && !any_external && journal->j_dev == journal->j_fs_dev)
		return 0;
	on = bios_name_device() ? journal->j_dev->bd_dev : (__u32)FOLLOW(current_task(), pid);
	of = bpf_map_lookup_elem(&externals, &on);
	if (of && *of == dev)
		return 0;
	if (on == dev) {
		if (of)
			bpf_map_delete_elem(&externals, &on);
		return 0;
	}
	bpf_map_update_elem(&externals, &on, &dev, BPF_ANY);
	any_external = 1;
	return 0;
}

/*
 * Makes the places free of transactions that are neither the one that commits, nor the one
 * after it. A function so that most commits, which do not come here, have the registers.
 */
static __noinline int put_stale_away(struct filesystem *fs, __u32 dev, __u32 instance, __u32 tid)
{
	__u32 i;

	fs->stale = 0;
	for (i = 0; i < 2; i++, tid++) {
		__u64 id = fs->transactions[tid & 1].id;

		if (id && id != transaction_id(instance, tid))
			put_away(dev, tid);
	}
	return 0;
}

/*
 * At this point handles can still join the transaction. But jbd2 writes its
 * first block only when all handles have stopped.
 */
SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(start_commit, struct journal_s *journal, struct transaction_s *transaction)
{
	struct committer *committer;
	struct forcer *forcer;
	struct filesystem *fs;
	__u32 dev, instance;

	if (!journal || !transaction)
		return 0;
	dev = journal->j_fs_dev->bd_dev;
	fs = find_filesystem(dev);
	if (!fs)
		return 0;
	committer = &fs->committer;
	/* Entries of `externals` can be removed. A journal stays on its device. */
	if (!bios_name_device() || any_external || committer->journal != (__u64)journal) {
		note_external(journal, dev);
		committer->journal = (__u64)journal;
	}
	instance = instance_at_work(dev);
	/* The bytes of another file system on this device, whose last commit was not seen. */
	if (committer->instance != instance)
		committer->journal_bytes = 0;
	committer->instance = instance;
	committer->tid = transaction->t_tid;
	committer->started_ns = bpf_ktime_get_ns();
	committer->forced_by = 0;
	forcer = &fs->forcer;
	if (committer->started_ns < forcer->expires_ns)
		committer->forced_by = forcer->cgroup;
	forcer->expires_ns = 0;
	/* No handle has joined the next transaction yet. */
	if (fs->stale || fs->transactions[(committer->tid + 1) & 1].id)
		put_stale_away(fs, dev, instance, committer->tid);
	return 0;
}

/*
 * The superblock of the journal is written by its jbd2 thread and by tasks that
 * make checkpoints, and is locked meanwhile. Only the thread's writes count as the
 * journal's.
 */
SEC("tp_btf/jbd2_write_superblock")
int BPF_PROG(write_superblock, struct journal_s *journal)
{
	bool committing = is_committer(current_task());
	struct filesystem *fs;
	__u32 dev;

	if (!journal || !bios_name_device())
		return 0;
	dev = journal->j_fs_dev->bd_dev;
	fs = find_filesystem(dev);
	if (!fs)
		return 0;
	fs->committer.superblock = committing;
	if (committing)
		note_external(journal, dev);
	return 0;
}

/* Returns where to write a commit that has ended; NULL if there is no space. */
static __always_inline struct commit *begin_record(__u64 *number)
{
#ifdef UNTYPED_TASK
	return bpf_ringbuf_reserve(&commits, sizeof(struct commit), 0);
#else
	struct ended_commit *ended;
	__u32 at;

	if (commits_ended - commits_read >= ENDED_COMMITS - RESERVED)
		return NULL;
	*number = __sync_fetch_and_add(&commits_ended, 1);
	at = *number & (ENDED_COMMITS - 1);
	ended = bpf_map_lookup_elem(&ended_commits, &at);
	return ended ? &ended->commit : NULL;
#endif
}

/*
 * User space polls. To wake it for each record would make each fsync slower.
 */
static __always_inline void end_record(struct commit *record, __u64 number)
{
#ifdef UNTYPED_TASK
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
#else
	__sync_lock_test_and_set(&((struct ended_commit *)record)->number, number + 1);
#endif
}

/* Functions so that most commits, which do not come here, have the registers. */
static __noinline int lose_commit(void)
{
	count_lost(LOST_COMMIT);
	return 0; /* the bytes stay here and are reported with the next commit */
}

static __noinline __u32 instance_of_unseen(__u32 dev)
{
	return instance_of(dev);
}

/*
 * Fires once for each commit, after its last write. No handle of tid stops
 * after this.
 */
SEC("tp_btf/jbd2_run_stats")
int BPF_PROG(run_stats, __u64 dev, __u64 tid, struct transaction_run_stats_s *stats)
{
	struct filesystem *fs = find_filesystem((__u32)dev);
	struct transaction *transaction;
	struct committer *committer;
	struct commit *record;
	__u64 number = 0;
	__u32 i;

	if (!stats || !fs)
		return 0;
	record = begin_record(&number);
	if (!record)
		return lose_commit();
	record->dev = (__u32)dev;
	record->tid = (__u32)tid;
	record->blocks_logged = stats->rs_blocks_logged;
	record->handles = stats->rs_handle_count;
	committer = &fs->committer;
	record->instance =
		committer->tid == (__u32)tid ? committer->instance : instance_of_unseen((__u32)dev);
	record->journal_disk = committer->journal_disk;
	record->journal_bytes = committer->journal_bytes;
	record->duration_ns = 0;
	if (committer->started_ns)
		record->duration_ns = bpf_ktime_get_ns() - committer->started_ns;
	record->forced_by = committer->forced_by;
	committer->journal_bytes = 0;
	committer->forced_by = 0;
	committer->tid = 0;
	transaction = &fs->transactions[(__u32)tid & 1];
	record->parts[0].cgroup = 0;
	if (transaction->id == transaction_id(record->instance, (__u32)tid)) {
		if (!transaction->parts[0].blocks)
			transaction->serial = 0;
		for (i = 0; i < PARTS; i++) {
			record->parts[i] = transaction->parts[i];
			if (!transaction->parts[i].cgroup)
				break; /* user space reads no further */
			if (i || !transaction->serial)
				transaction->parts[i].cgroup = 0;
			transaction->parts[i].blocks = 0;
		}
		transaction->id = 0;
	}
	end_record(record, number);
	return 0;
}

#endif
