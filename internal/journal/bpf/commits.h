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

static __always_inline int sync_begins(__u32 dev, __u64 expires_ns)
{
	name_forcer(dev, cgroup_of(current_task()), expires_ns);
	return 0;
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_file, struct file *file)
{
	if (!file)
		return 0;
	return sync_begins(file->f_inode->i_sb->s_dev, UNTIL_EXIT);
}

/* Before 6.18 the argument was a dentry. */
SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_dentry, struct dentry *dentry)
{
	if (!dentry)
		return 0;
	return sync_begins(dentry->d_inode->i_sb->s_dev, UNTIL_EXIT);
}

SEC("tp_btf/ext4_sync_fs")
int BPF_PROG(sync_fs, struct super_block *sb)
{
	if (!sb)
		return 0;
	return sync_begins(sb->s_dev, bpf_ktime_get_ns() + SYNC_FS_NS);
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(sync_file_exit, struct inode *inode)
{
	struct forcer *forcer;
	__u32 dev;

	if (!inode)
		return 0;
	dev = inode->i_sb->s_dev;
	forcer = bpf_map_lookup_elem(&forcers, &dev);
	if (forcer && forcer->cgroup == cgroup_of(current_task()))
		forcer->expires_ns = 0;
	return 0;
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

static __always_inline struct committer *find_committer(__u32 pid)
{
	struct committer fresh = {}, *committer = bpf_map_lookup_elem(&committers, &pid);

	if (committer)
		return committer;
	bpf_map_update_elem(&committers, &pid, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&committers, &pid);
}

/*
 * The name is read first, because the process ID may have belonged to another
 * thread.
 */
static __always_inline struct committer *committer_of(struct task_struct *task)
{
	return is_committer(task) ? find_committer(FOLLOW(task, pid)) : NULL;
}

/*
 * At this point handles can still join the transaction. But jbd2 writes its
 * first block only when all handles have stopped.
 */
SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(start_commit, struct journal_s *journal, struct transaction_s *transaction)
{
	struct committer *committer = committer_of(current_task());
	struct forcer *forcer;
	__u32 dev, instance;

	if (!committer || !journal || !transaction)
		return 0;
	dev = journal->j_fs_dev->bd_dev;
	instance = instance_at_work(dev);
	/* The process ID belonged to the jbd2 thread of another file system. */
	if (committer->dev && (committer->dev != dev || committer->instance != instance))
		committer->journal_bytes = 0;
	committer->dev = dev;
	committer->instance = instance;
	committer->tid = transaction->t_tid;
	committer->started_ns = bpf_ktime_get_ns();
	committer->forced_by = 0;
	forcer = bpf_map_lookup_elem(&forcers, &dev);
	if (forcer) {
		if (committer->started_ns < forcer->expires_ns)
			committer->forced_by = forcer->cgroup;
		forcer->expires_ns = 0;
	}
	return 0;
}

/*
 * Fires once for each commit, after its last write. No handle of tid stops
 * after this.
 */
SEC("tp_btf/jbd2_run_stats")
int BPF_PROG(run_stats, __u64 dev, __u64 tid, struct transaction_run_stats_s *stats)
{
	struct committer *committer = committer_of(current_task());
	struct commit *record;

	if (!stats)
		return 0;
	record = bpf_ringbuf_reserve(&commits, sizeof(*record), 0);
	if (!record) {
		count_lost(LOST_COMMIT);
		return 0; /* the bytes stay here and are reported with the next commit */
	}
	record->dev = (__u32)dev;
	record->tid = (__u32)tid;
	record->blocks_logged = stats->rs_blocks_logged;
	record->handles = stats->rs_handle_count;
	record->journal_bytes = 0;
	record->duration_ns = 0;
	record->forced_by = 0;
	record->journal_disk = 0;
	record->instance = instance_of((__u32)dev);
	if (committer) {
		record->journal_disk = committer->journal_disk;
		record->journal_bytes = committer->journal_bytes;
		if (committer->started_ns)
			record->duration_ns = bpf_ktime_get_ns() - committer->started_ns;
		record->forced_by = committer->forced_by;
		committer->journal_bytes = 0;
		committer->forced_by = 0;
		committer->tid = 0;
	}
	/*
	 * User space polls. To wake it for each record would make each fsync
	 * slower.
	 */
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

#endif
