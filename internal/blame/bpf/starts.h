/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Starts of handles: how long each waits for a commit, or for a checkpoint that frees space
 * in the log.
 */
#ifndef DAYBOOK_BLAME_STARTS_H
#define DAYBOOK_BLAME_STARTS_H

#include "progress.h"
#include "waiters.h"
#include "waits.h"

/* further members of the kernel's type; see kernel.h */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct journal_s___barrier {
	unsigned long j_flags;
	int j_barrier_count;
};

#pragma clang attribute pop

#define JBD2_UNMOUNT 1 /* in j_flags */

/*
 * jbd2 reports no start of a handle of a file system without a journal, or whose journal
 * has failed, and none if a handle is restarted. What began there is no wait of the task's next
 * handle, and a checkpoint there has ended.
 */
static __always_inline int forget_start(void)
{
	struct task *task = task_of((__u32)bpf_get_current_pid_tgid());

	if (!task)
		return 0;
	end_checkpoint(task);
	if (!task->handle_from)
		return 0;
	change(&starting, -1);
	task->handle_from = 0;
	task->checkpoint_from = 0;
	return 0;
}

/*
 * ext4 reports when it starts a handle, and jbd2 when it has started it. What
 * is between is the wait for a locked transaction, or for space in the log. It
 * is measured only while a commit or a checkpoint runs: otherwise there is
 * nothing to wait for.
 */
static __always_inline int measure_handle(void)
{
	struct task_struct *current = current_task();
	struct task *task;

	/* nested, it has a handle; of either only a checkpoint is noted */
	if (is_kernel_thread(current) || current->journal_info)
		return checkpoints ? forget_start() : 0;
	task = make_task(current->pid);
	if (!task)
		return 0;
	if (!task->handle_from)
		change(&starting, 1);
	task->handle_from = bpf_ktime_get_ns();
	task->checkpoint_from = 0;
	end_checkpoint(task); /* as in forget_start() */
	return 0;
}

static __always_inline int handle_begins(void)
{
	if (committing || checkpoints)
		return measure_handle();
	return starting ? forget_start() : 0;
}

SEC("tp_btf/ext4_journal_start_sb")
int BPF_PROG(handle_begins_sb)
{
	return handle_begins();
}

SEC("tp_btf/ext4_journal_start_inode")
int BPF_PROG(handle_begins_inode)
{
	return handle_begins();
}

/* Until 6.3 it was one tracepoint. */
SEC("tp_btf/ext4_journal_start")
int BPF_PROG(handle_begins_any)
{
	return handle_begins();
}

/*
 * A task that unmounts, freezes, remounts or resizes checkpoints, too, and starts no handle
 * after it. It empties the log while jbd2 lets no handle start, or in an unmount.
 */
static __always_inline bool empties_log(struct journal_s *of)
{
	struct journal_s___barrier *journal = (struct journal_s___barrier *)of;

	return journal->j_barrier_count || journal->j_flags & JBD2_UNMOUNT;
}

/*
 * A task finds the log full and checkpoints, in its own context. Others that
 * need space sleep until it has finished, as tasks that wait for I/O do
 * (mutex_lock_io): see sleeps().
 */
SEC("tp_btf/jbd2_checkpoint")
int BPF_PROG(checkpoint, struct journal_s *of)
{
	__u64 now = bpf_ktime_get_ns();
	struct task *task;

	if (!of || empties_log(of))
		return 0;
	task = make_task((__u32)bpf_get_current_pid_tgid());
	if (!task || task->checkpointing)
		return 0;
	if (!task->handle_from) {
		change(&starting, 1);
		task->handle_from = now;
	}
	if (!task->checkpoint_from)
		task->checkpoint_from = now;
	task->checkpointing = 1;
	change(&checkpoints, 1);
	return 0;
}

/* A shorter start of a handle had nothing to wait for, in nanoseconds. */
#define HANDLE_WAITED 50000

static __always_inline int handle_started(__u32 dev, bool memory)
{
	struct journal *journal;
	__u64 now, from, checkpointed = 0, total, sum;
	struct task_struct *current;
	struct span span = {};
	struct task *task;

	if (!starting)
		return 0;
	current = current_task();
	task = task_of(current->pid);
	if (!task || !task->handle_from)
		return 0;
	change(&starting, -1);
	now = bpf_ktime_get_ns();
	from = task->handle_from;
	task->handle_from = 0;
	span.from = from;
	span.until = now;
	span.dev = dev;
	end_checkpoint(task);
	if (task->checkpoint_from) {
		span.until = task->checkpoint_from;
		checkpointed = now - span.until;
		task->checkpoint_from = 0;
	}
	total = now - from;
	if (total < HANDLE_WAITED || is_kernel_thread(current))
		return 0;
	span.cgroup = cgroup_of(current);
	span.operation = task->sync_from ? task->operation : HANDLE;
	if (task->sync_from) {
		task->handle_ns += total;
		task->commit_from = 0;
	} else {
		count_call(span.dev, span.cgroup, HANDLE, total);
	}
	if (memory) {
		/*
		 * The log is full, and the commit and the checkpoint that free it are
		 * others' work: the task only sees that blocks went home meanwhile.
		 */
		journal = journal_of(dev);
		if (journal && journal->home_at >= from) {
			checkpointed = total;
			span.until = from;
		}
	}
	sum = checkpointed + add_commits(&span);
	add_rest(&span, 0, checkpointed, 0, total > sum ? total - sum : 0);
	return 0;
}

SEC("tp_btf/jbd2_handle_start")
int BPF_PROG(handle_starts, __u64 dev)
{
	return handle_started((__u32)dev, false);
}

#endif
