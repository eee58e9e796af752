/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Syncs: how long each fsync, fdatasync, msync and write with O_SYNC waits.
 */
#ifndef DAYBOOK_BLAME_SYNCS_H
#define DAYBOOK_BLAME_SYNCS_H

#include "progress.h"
#include "waiters.h"
#include "waits.h"

/* further types of the kernel; see kernel.h */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* arch/x86/include/asm/ptrace.h */
struct pt_regs___x86 {
	unsigned long orig_ax;
};

/* arch/arm64/include/asm/ptrace.h */
struct pt_regs___arm64 {
	int syscallno;
};

#pragma clang attribute pop

/* Numbers of the system calls on this architecture, set by user space. */
const volatile long sys_fsync = -1;
const volatile long sys_fdatasync = -1;
const volatile long sys_msync = -1;

static long (*task_pt_regs)(struct task_struct *task) = (void *)175; /* bpf_task_pt_regs */

static __always_inline long system_call(void)
{
	void *registers = (void *)task_pt_regs(bpf_get_current_task_btf());

	if (bpf_core_field_exists(((struct pt_regs___x86 *)registers)->orig_ax))
		return ((struct pt_regs___x86 *)registers)->orig_ax;
	if (bpf_core_field_exists(((struct pt_regs___arm64 *)registers)->syscallno))
		return ((struct pt_regs___arm64 *)registers)->syscallno;
	return -2;
}

static __always_inline __u32 operation_of(int datasync)
{
	long call = system_call();

	if (call == sys_fsync)
		return FSYNC;
	if (call == sys_fdatasync)
		return FDATASYNC;
	if (call == sys_msync)
		return MSYNC;
	if (call == -2 || is_kernel_thread(current_task()))
		return datasync ? FDATASYNC : FSYNC;
	return WRITE;
}

static __always_inline int sync_begins(int datasync, bool memory)
{
	struct task *task = make_task((__u32)bpf_get_current_pid_tgid());

	if (!task)
		return 0;
	task->operation = operation_of(datasync);
	task->commit_from = 0;
	task->flush_from = 0;
	task->handle_ns = 0;
	task->written_at = 0;
	task->memory = memory;
	task->requested = 0;
	if (!task->sync_from)
		change(&active, 1);
	task->sync_from = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_file, struct file *file, int datasync)
{
	if (file)
		work_for(file->f_inode->i_ino);
	return sync_begins(datasync, false);
}

/* Before 6.18 the argument was a dentry. */
SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_dentry, struct dentry *dentry, int datasync)
{
	if (dentry)
		work_for(dentry->d_inode->i_ino);
	return sync_begins(datasync, false);
}

/*
 * A sync writes its own data, then waits for the commit, then flushes the disk
 * if the commit did not. A part that no phase explains is the rest: waking up,
 * the start of the commit, and commits that are too old.
 */
static __always_inline int sync_ends(__u32 dev)
{
	struct task *task = task_of((__u32)bpf_get_current_pid_tgid());
	__u64 now = bpf_ktime_get_ns(), total, own, flush = 0, sum;
	struct span span = {};

	if (!task || !task->sync_from)
		return 0;
	change(&active, -1);
	total = now - task->sync_from;
	span.until = task->flush_from ? task->flush_from : now;
	span.from = task->commit_from ? task->commit_from : span.until;
	own = (task->written_at ? task->written_at : span.from) - task->sync_from;
	if (!task->written_at)
		own = own > task->handle_ns ? own - task->handle_ns : 0;
	if (task->flush_from)
		flush = now - task->flush_from;
	sum = own + task->handle_ns + flush;
	task->sync_from = 0;

	span.cgroup = cgroup_of(current_task());
	span.operation = task->operation;
	span.dev = dev;
	span.own = own;
	span.flush = flush;
	span.total = total;
	span.known = sum;
	sum += add_commits(&span);
	if (!span.added)
		end_call(&span, total > sum ? total - sum : 0);
	if (!span.ended)
		count_call(span.dev, span.cgroup, span.operation, total);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(sync_exit, struct inode *inode)
{
	work_for(0);
	return inode ? sync_ends(inode->i_sb->s_dev) : 0;
}

#endif
