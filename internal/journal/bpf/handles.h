/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Handles: which cgroup dirtied blocks of which transaction. There is one
 * addition for each handle that dirtied a block.
 */
#ifndef DAYBOOK_HANDLES_H
#define DAYBOOK_HANDLES_H

#include "owners.h"

/*
 * Returns the cgroup for which a kernel thread works. This is a function so that handles of
 * processes, which do not come here, have the registers.
 */
static __noinline __u64 thread_owner(struct task_struct *task)
{
	__u64 owner = owner_of_conversion();

	if (owner == NO_OWNER)
		owner = works_for(FOLLOW(task, pid));
	return owner != NO_OWNER ? owner : cgroup_of(task);
}

/* Returns the cgroup that a handle of this task belongs to. */
static __always_inline __u64 handle_owner(struct task_struct *task)
{
	return is_kernel_thread(task) ? thread_owner(task) : cgroup_of(task);
}

static __always_inline void put_dirtied(__u32 dev, __u32 instance, __u32 tid, __u64 cgroup,
					__s64 blocks)
{
	struct dirtied_key key = {.dev = dev, .tid = tid, .cgroup = cgroup, .instance = instance};
	__s64 *sum = bpf_map_lookup_elem(&dirtied, &key);

	if (sum) {
		__sync_fetch_and_add(sum, blocks);
		return;
	}
	if (bpf_map_update_elem(&dirtied, &key, &blocks, BPF_NOEXIST) == 0)
		return;
	sum = bpf_map_lookup_elem(&dirtied, &key);
	if (sum)
		__sync_fetch_and_add(sum, blocks);
	else
		count_lost(LOST_DIRTIED);
}

static __always_inline __u64 transaction_id(__u32 instance, __u32 tid)
{
	return (__u64)instance << 32 | tid;
}

/*
 * Adds to the transaction in the entry of its file system, which costs less than
 * an entry for each transaction. Returns false if there is no space, or another
 * transaction is there: one whose end was not seen, or one whose handle restarted
 * and ended before. Since 5.12, with which the compilation for older kernels does
 * without.
 */
static __always_inline bool add_part(struct filesystem *fs, __u32 instance, __u32 tid, __u64 cgroup,
				     __s64 blocks)
{
#ifdef UNTYPED_TASK
	return false;
#else
	struct transaction *transaction = &fs->transactions[tid & 1];
	__u64 id = transaction_id(instance, tid), now = transaction->id, owner;
	struct part *part;
	__u32 i;

	if (!now)
		now = __sync_val_compare_and_swap(&transaction->id, 0, id);
	if (now && now != id) {
		fs->stale = 1;
		return false;
	}
	for (i = 0; i < PARTS; i++) {
		part = &transaction->parts[i];
		owner = part->cgroup;
		if (!owner)
			owner = __sync_val_compare_and_swap(&part->cgroup, 0, cgroup);
		if (!owner || owner == cgroup) {
			__sync_fetch_and_add(&part->blocks, blocks);
			return true;
		}
	}
	return false;
#endif
}

static __noinline int add_dirtied(__u32 dev, __u32 tid, __u64 cgroup, __s64 blocks)
{
	__u32 instance = instance_at_work(dev);
	struct filesystem *fs = find_filesystem(dev);

	if (!fs || !add_part(fs, instance, tid, cgroup, blocks))
		put_dirtied(dev, instance, tid, cgroup, blocks);
	return 0;
}

#ifndef UNTYPED_TASK
/*
 * Notes that the first part of a transaction is that of a task, whose handle in it is still
 * open. A file system that is being unmounted may be the last one with this number of its
 * transaction, so its handles come here each time.
 */
static __always_inline void note_first(struct task_struct *task, __u32 dev, __u32 tid, __u64 cgroup)
{
	struct filesystem_place *place = filesystem_place(dev);
	struct instance *instance = find_instance(dev);
	struct transaction *transaction;

	if (!is_its(place, dev) || (instance && instance->state & INSTANCE_ENDED))
		return;
	transaction = &place->filesystem.transactions[tid & 1];
	if (transaction->id == transaction_id(instance_of(dev), tid) &&
	    transaction->parts[0].cgroup == cgroup) {
		transaction->instance = instance_of(dev);
		transaction->serial = serial_of(task);
	}
}

/* Adds the blocks of a process to its transaction, if its part is known to be the first. */
static __always_inline bool add_to_first(__u32 dev, __u32 tid, __s64 blocks)
{
	struct task_struct *task = current_task();
	struct filesystem_place *place;
	struct transaction *transaction;
	__u64 serial, now;

	if (is_kernel_thread(task))
		return false;
	serial = serial_of(task);
	place = filesystem_place(dev);
	transaction = &place->filesystem.transactions[tid & 1];
	if (!serial || transaction->serial != serial || !is_its(place, dev))
		return false;
	now = transaction->id;
	if (!now)
		now = __sync_val_compare_and_swap(&transaction->id, 0,
						  transaction_id(transaction->instance, tid));
	if (now && (__u32)now != tid)
		return false;
	__sync_fetch_and_add(&transaction->parts[0].blocks, blocks);
	return true;
}
#endif

/*
 * Moves a transaction whose end was not seen to the map `dirtied`. No handle adds
 * to it any more. The function is not static, so that the verifier checks it once.
 */
__noinline int put_away(__u32 dev, __u32 which)
{
	struct filesystem *fs = known_filesystem(dev);
	struct transaction *transaction;
	__u64 id;
	__u32 i;

	if (!fs)
		return 0;
	transaction = &fs->transactions[which & 1];
	id = transaction->id;
	for (i = 0; i < PARTS; i++) {
		struct part *part = &transaction->parts[i];

		if (part->cgroup)
			put_dirtied(dev, (__u32)(id >> 32), (__u32)id, part->cgroup, part->blocks);
		part->cgroup = 0;
		part->blocks = 0;
	}
	transaction->serial = 0;
	transaction->id = 0;
	return 0;
}

/*
 * The first of several syncs is named as the forcer of the commit, unless it
 * has expired.
 */
static __always_inline void name_forcer(struct filesystem *fs, __u64 cgroup, __u64 expires_ns)
{
	struct forcer *now = &fs->forcer;

	if (!now->expires_ns || now->expires_ns < bpf_ktime_get_ns()) {
		now->cgroup = cgroup;
		now->expires_ns = expires_ns;
	}
}

/*
 * How long a synchronous handle, which requests a commit when it stops, is
 * named as the forcer, in nanoseconds.
 */
#define SYNC_HANDLE_NS 1000000000ULL

/*
 * Counts a handle. This is a function so that most handles, which do not come here, have
 * the registers.
 */
static __noinline int count_handle(__u32 dev, __u32 tid, __s32 blocks, __u32 sync)
{
	struct task_struct *task = current_task();
	__u64 cgroup = handle_owner(task);
	struct filesystem *fs;

	if (blocks) {
		add_dirtied(dev, tid, cgroup, blocks);
#ifndef UNTYPED_TASK
		if (!is_kernel_thread(task))
			note_first(task, dev, tid, cgroup);
#endif
	}
	if (!sync)
		return 0;
	fs = find_filesystem(dev);
	if (fs)
		name_forcer(fs, cgroup, bpf_ktime_get_ns() + SYNC_HANDLE_NS);
	return 0;
}

/*
 * Returns what was noted of the handle that this task is about to end or has restarted; NULL
 * if nothing was.
 */
static __always_inline struct handle_seen *noted_handle(struct task_struct *task)
{
	__u32 pid = FOLLOW(task, pid);
	struct handle_seen *before = bpf_map_lookup_elem(&seen, &pid);

	/* The number of the process may have been used by another task, whose end was not seen. */
	return before && before->handle == (__u64)FOLLOW(task, journal_info) ? before : NULL;
}

/*
 * Counts a handle that ends while some are noted. What was noted of it is counted already,
 * and for the owner that it had then.
 */
static __noinline int count_noted(__u32 dev, __u32 tid, __s32 blocks, __u32 sync)
{
	struct task_struct *task = current_task();
	struct handle_seen *before = noted_handle(task);
	__u32 pid = FOLLOW(task, pid);
	struct filesystem *fs;
	__u64 owner;

	if (!before)
		return blocks || sync ? count_handle(dev, tid, blocks, sync) : 0;
	owner = before->owner;
	if (before->dev == dev && before->tid == tid)
		blocks -= before->dirtied;
	if (bpf_map_delete_elem(&seen, &pid) == 0)
		__sync_fetch_and_add(&handles_noted, -1);
	if (blocks)
		add_dirtied(dev, tid, owner, blocks);
	if (!sync)
		return 0;
	fs = find_filesystem(dev);
	if (fs)
		name_forcer(fs, owner, bpf_ktime_get_ns() + SYNC_HANDLE_NS);
	return 0;
}

/*
 * A handle uses a credit when a buffer joins the transaction for the first
 * time. So the number of used credits is the number of blocks that this handle
 * dirtied first. The number is signed: a handle that frees blocks gets credits
 * back (jbd2_journal_forget).
 */
SEC("tp_btf/jbd2_handle_stats")
int BPF_PROG(handle_stats, __u64 dev, __u64 tid, __u64 type, __u64 line, __u64 interval, __u64 sync,
	     __u64 requested, __u64 used)
{
	if (handles_noted)
		return count_noted((__u32)dev, (__u32)tid, (__s32)used, (__u32)sync);
	if (!(__u32)sync) {
		if (!(__s32)used)
			return 0; /* all its blocks were in the transaction before */
#ifndef UNTYPED_TASK
		if (add_to_first((__u32)dev, (__u32)tid, (__s32)used))
			return 0;
#endif
	}
	return count_handle((__u32)dev, (__u32)tid, (__s32)used, (__u32)sync);
}

/*
 * A handle that restarts sets its count of credits to zero, and can wait until its
 * transaction has ended, as for space in the log, before jbd2_handle_restart fires. So its
 * blocks are counted earlier: at the place where a truncate discards the preallocations of
 * the file, which is its last action before a restart (ext4_ext_trunc_restart_fn). That
 * happens only for regular files. So they are also counted where an extent is freed. Most of
 * these handles do not restart: when one ends, only its other blocks are counted.
 */
static __always_inline int note_handle(void)
{
	struct task_struct *task = current_task();
	struct jbd2_journal_handle *handle = FOLLOW(task, journal_info);
	struct transaction_s *transaction;
	struct handle_seen now = {}, *before;
	__s32 blocks;
	__u32 pid;

	if (!handle)
		return 0;
	transaction = BPF_CORE_READ(handle, h_transaction);
	if (!transaction)
		return 0; /* its restart failed */
	pid = FOLLOW(task, pid);
	now.handle = (__u64)handle;
	now.tid = BPF_CORE_READ(transaction, t_tid);
	now.dev = BPF_CORE_READ(transaction, t_journal, j_fs_dev, bd_dev);
	now.dirtied = (__s32)BPF_CORE_READ(handle, h_requested_credits) -
		      BPF_CORE_READ(handle, h_total_credits);
	blocks = now.dirtied;
	before = bpf_map_lookup_elem(&seen, &pid);
	if (before && before->handle == now.handle) {
		now.owner = before->owner;
		if (before->dev == now.dev && before->tid == now.tid)
			blocks -= before->dirtied;
	} else {
		now.owner = handle_owner(task);
	}
	if (before) {
		*before = now;
	} else if (bpf_map_update_elem(&seen, &pid, &now, BPF_NOEXIST) == 0) {
		__sync_fetch_and_add(&handles_noted, 1);
	} else {
		count_lost(LOST_DIRTIED);
		return 0; /* what it has dirtied after its last restart is counted when it ends */
	}
	if (blocks)
		add_dirtied(now.dev, now.tid, now.owner, blocks);
	return 0;
}

SEC("tp_btf/ext4_discard_preallocations")
int BPF_PROG(note_discard_preallocations)
{
	return note_handle();
}

SEC("tp_btf/ext4_free_blocks")
int BPF_PROG(note_free_blocks)
{
	return note_handle();
}

SEC("tp_btf/ext4_remove_blocks")
int BPF_PROG(note_remove_blocks)
{
	return note_handle();
}

SEC("tp_btf/ext4_ext_rm_leaf")
int BPF_PROG(note_rm_leaf)
{
	return note_handle();
}

SEC("tp_btf/ext4_ext_rm_idx")
int BPF_PROG(note_rm_idx)
{
	return note_handle();
}

/* A handle can restart in the same transaction. */
SEC("tp_btf/jbd2_handle_restart")
int BPF_PROG(handle_restart)
{
	struct handle_seen *before = handles_noted ? noted_handle(current_task()) : NULL;

	if (before)
		before->dirtied = 0;
	return 0;
}

#endif
