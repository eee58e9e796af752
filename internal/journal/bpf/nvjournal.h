/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Journals in memory (nvjournal/kernel): of ext4nvj, which is ext4, and of jfsnvj,
 * which is JFS. A handle writes log lines of 64 bytes in its own task when it stops.
 * Of ext4nvj it only says which blocks it was the first to change in the transaction,
 * and any task logs them later (log=commit). The task that needs a commit does the
 * commit itself. So there is no jbd2 thread, and only the writes of checkpoints are
 * charged to another cgroup.
 *
 * The modules have no BTF, so these programs attach to raw tracepoints with names
 * of their own (nvjournal/kernel/jbd2/trace.h and jfs/trace.h, and the tracepoints
 * of ext4 with another prefix). Those of a module are loaded when such a file system
 * is mounted.
 */
#ifndef DAYBOOK_NVJOURNAL_H
#define DAYBOOK_NVJOURNAL_H

#include "bios.h"
#include "charged.h"
#include "handles.h"

/* The part of a cgroup in a journal in memory. */
struct logged_key {
	__u32 dev;
	__u32 instance;
	__u64 cgroup;
};

struct logged {
	__u64 lines;
	__u64 blocks;
	__u64 handles;
	__u64 commits;
	__u64 forced; /* how many of the commits a process did, and not a kernel thread */
};

/* A block that a handle of ext4nvj has changed, and that will be logged later. */
struct waiting_key {
	__u64 block;
	__u64 dev;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct logged_key);
	__type(value, struct logged);
} logged SEC(".maps");

/*
 * block -> the cgroup whose handle changed it first in its transaction, until it
 * is logged. A mount has 512 of them at most.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct waiting_key);
	__type(value, __u64);
} waiting SEC(".maps");

/* Returns NULL if the map is full. */
static __always_inline struct logged *logged_by(__u32 dev, __u64 cgroup)
{
	struct logged_key key = {.dev = dev, .instance = instance_at_work(dev), .cgroup = cgroup};
	struct logged fresh = {}, *sums = bpf_map_lookup_elem(&logged, &key);

	if (sums)
		return sums;
	bpf_map_update_elem(&logged, &key, &fresh, BPF_NOEXIST);
	sums = bpf_map_lookup_elem(&logged, &key);
	if (!sums)
		count_lost(LOST_LOGGED);
	return sums;
}

static __always_inline int nvj_add(__u32 dev, __u64 owner, __u32 blocks, __u32 lines)
{
	struct logged *sums = logged_by(dev, owner);

	if (!sums)
		return 0;
	__sync_fetch_and_add(&sums->lines, lines);
	__sync_fetch_and_add(&sums->blocks, blocks);
	__sync_fetch_and_add(&sums->handles, 1);
	return 0;
}

static __always_inline int nvj_commits(__u32 dev)
{
	struct task_struct *task = current_task();
	struct logged *sums = logged_by(dev, cgroup_of(task));

	if (!sums)
		return 0;
	__sync_fetch_and_add(&sums->commits, 1);
	if (!is_kernel_thread(task))
		__sync_fetch_and_add(&sums->forced, 1);
	return 0;
}

/*
 * The pages of these bios are in no page cache, or in one that is JFS's own. No completion
 * would take what is noted of a bio for a disk that is not observed.
 */
static __always_inline int nvj_writes(__u32 dev, struct bio *bio)
{
	struct gendisk *gendisk;
	bool layered;
	__u32 disk;

	/* Before 5.12 there is no such module. */
	if (!bpf_core_field_exists(bio->bi_bdev))
		return 0;
	gendisk = BPF_CORE_READ(bio, bi_bdev, bd_disk);
	layered = !BPF_CORE_READ(gendisk, queue, mq_ops);
	disk = (__u32)BPF_CORE_READ(gendisk, major) << MINORBITS |
	       (__u32)BPF_CORE_READ(gendisk, first_minor);
	if (layered)
		layers = 1;
	else if (!bpf_map_lookup_elem(&disks, &disk))
		return 0;
	note_bio((__u64)bio, (__u64)BPF_CORE_READ(bio, bi_io_vec), layered, true, KIND_METADATA,
		 pages_of(dev));
	return 0;
}

/* What both modules have (nvjournal/kernel/mount/events.h). */
#define NVJ_JOURNAL(module)                                                                        \
	SEC("raw_tp/" #module "_start_commit")                                                     \
	int BPF_PROG(module##_commit, __u64 dev)                                                   \
	{                                                                                          \
		return nvj_commits((__u32)dev);                                                    \
	}                                                                                          \
	SEC("raw_tp/" #module "_write_home")                                                       \
	int BPF_PROG(module##_home, __u64 dev, __u64 block, struct bio *bio)                       \
	{                                                                                          \
		return nvj_writes((__u32)dev, bio);                                                \
	}

NVJ_JOURNAL(jbd2nvj)
NVJ_JOURNAL(jfsnvj)

SEC("raw_tp/jbd2nvj_handle_stats")
int BPF_PROG(nvj_handle_stats, __u64 dev, __u64 tid, void *handle, __u64 blocks, __u64 lines)
{
	return nvj_add((__u32)dev, handle_owner(current_task()), (__u32)blocks, (__u32)lines);
}

SEC("raw_tp/jbd2nvj_log_later")
int BPF_PROG(nvj_log_later, __u64 dev, __u64 tid, __u64 block)
{
	struct waiting_key key = {.block = block, .dev = (__u32)dev};
	__u64 cgroup = handle_owner(current_task());

	bpf_map_update_elem(&waiting, &key, &cgroup, BPF_ANY);
	return 0;
}

/* Of a block that was changed before this program was attached, this task's. */
SEC("raw_tp/jbd2nvj_logged_later")
int BPF_PROG(nvj_logged_later, __u64 dev, __u64 tid, __u64 block, __u64 lines)
{
	struct waiting_key key = {.block = block, .dev = (__u32)dev};
	__u64 *owner = bpf_map_lookup_elem(&waiting, &key);
	struct logged *sums = logged_by((__u32)dev, owner ? *owner : cgroup_of(current_task()));

	if (sums)
		__sync_fetch_and_add(&sums->lines, (__u32)lines);
	bpf_map_delete_elem(&waiting, &key);
	return 0;
}

/*
 * The owners of files, and the owners for which kernel threads work: as in
 * owners.h.
 */
static __always_inline int nvj_own(struct inode *inode)
{
	struct task_struct *task = current_task();

	if (is_kernel_thread(task))
		return 0;
	return own_number(task, BPF_CORE_READ(inode, i_ino), BPF_CORE_READ(inode, i_sb, s_dev));
}

static __always_inline int nvj_work_at(struct inode *inode, enum phase phase)
{
	struct task_struct *task = current_task();

	if (!is_kernel_thread(task))
		return 0;
	return work_on(task, BPF_CORE_READ(inode, i_ino), BPF_CORE_READ(inode, i_sb, s_dev), phase);
}

#define NVJ_OWNS(event)                                                                            \
	SEC("raw_tp/ext4nvj_" #event)                                                              \
	int BPF_PROG(nvj_own_##event, struct inode *inode)                                         \
	{                                                                                          \
		return nvj_own(inode);                                                             \
	}

#define NVJ_WORKS(event, phase)                                                                    \
	SEC("raw_tp/ext4nvj_" #event)                                                              \
	int BPF_PROG(nvj_work_##event, struct inode *inode)                                        \
	{                                                                                          \
		return nvj_work_at(inode, phase);                                                  \
	}

NVJ_OWNS(da_write_begin)
NVJ_OWNS(write_begin)
NVJ_OWNS(da_reserve_space)
NVJ_OWNS(truncate_enter)
NVJ_OWNS(fallocate_enter)
NVJ_WORKS(writepages, PHASE_WRITEBACK)
NVJ_WORKS(ext_handle_unwritten_extents, PHASE_CONVERSION)

SEC("raw_tp/ext4nvj_evict_inode")
int BPF_PROG(nvj_work_evict_inode, struct inode *inode)
{
	if (BPF_CORE_READ(inode, i_ino) == EXT4_ROOT_INO)
		note_end(BPF_CORE_READ(inode, i_sb, s_dev), (__u64)BPF_CORE_READ(inode, i_sb));
	return nvj_work_at(inode, PHASE_CONVERSION);
}

SEC("raw_tp/ext4nvj_writepages_result")
int BPF_PROG(nvj_work_writepages_result)
{
	return work_at(NULL, PHASE_WRITEBACK);
}

/* --- JFS ------------------------------------------------------------------------ */

/*
 * A kernel thread that commits an inode, as writeback does, works for the owner of
 * that inode.
 */
SEC("raw_tp/jfsnvj_transaction_stats")
int BPF_PROG(jfsnvj_log, __u64 dev, __u64 tid, struct inode *inode, __u64 blocks, __u64 lines)
{
	struct task_struct *task = current_task();
	__u64 owner = NO_OWNER;

	if (is_kernel_thread(task) && inode)
		owner = owner_of(BPF_CORE_READ(inode, i_ino), (__u32)dev);
	if (owner == NO_OWNER)
		owner = cgroup_of(task);
	return nvj_add((__u32)dev, owner, (__u32)blocks, (__u32)lines);
}

SEC("raw_tp/jfsnvj_dirty_inode")
int BPF_PROG(jfsnvj_own, struct inode *inode)
{
	return nvj_own(inode);
}

SEC("raw_tp/jfsnvj_put_super")
int BPF_PROG(jfsnvj_end, struct super_block *sb)
{
	note_end(BPF_CORE_READ(sb, s_dev), (__u64)sb);
	return 0;
}

#endif
