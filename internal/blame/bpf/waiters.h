/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks: what each process waits for, and what each jbd2 thread does.
 */
#ifndef DAYBOOK_BLAME_WAITERS_H
#define DAYBOOK_BLAME_WAITERS_H

#include "progress.h"
#include "taken.h"
#include "tasks.h"

#include <bpf/bpf_tracing.h>

/* A task: a process that waits, or the jbd2 thread that commits. */
struct task {
	__u64 sync_from;       /* 0: in no sync */
	__u64 commit_from;     /* from when the sync waits for a commit; 0: not yet */
	__u64 flush_from;      /* from when the sync itself flushes the disk */
	__u64 handle_from;     /* from when a handle starts; 0: none does */
	__u64 checkpoint_from; /* from when the handle waits for space in the log; 0: it does not */
	__u64 handle_ns;       /* what starts of handles took within the sync */
	__u64 held_until;      /* until when its open handle was added to `held` */
	__u64 ino;             /* the inode that a kernel thread works on */
	__u64 written_at;      /* when the sync has written its own data; 0: not known */
	__u64 page_from;       /* from when it waits for a page that a transaction has locked */
	__u64 page_ino;        /* the first inode of that transaction; 0: not known */
	__u32 operation;
	__u32 commit_dev;   /* of a jbd2 thread, while it commits */
	__u8 page_next;     /* its next sleep is for a page of ordered data */
	__u8 in_data;       /* its last sleep was */
	__u8 checkpointing; /* it checkpoints itself */
	__u8 memory;        /* it syncs a file system with a journal in memory */
	__u8 requested;     /* it is in a commit of a journal in memory */
	__u8 pad[3];
	__u32 later; /* this commit of a journal in memory does not wait for its handle */
};

/* Free again when the thread ends. */
struct task_place {
	__u32 pid; /* 0: free */
	__u32 pad;
	struct task task;
};

struct task_place task_places[TASK_PLACES];

/* Entries are reused, so that a call costs little. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct task);
} tasks SEC(".maps");

static __always_inline struct task_place *task_place(__u32 pid)
{
	return &task_places[pid & (TASK_PLACES - 1)];
}

static __always_inline struct task *task_of(__u32 pid)
{
	struct task_place *place = task_place(pid);

	if (place->pid == pid)
		return &place->task;
	if (!any_task)
		return NULL;
	return bpf_map_lookup_elem(&tasks, &pid);
}

/* Not static, so that the verifier checks it once. */
__noinline int add_task(__u32 pid)
{
	struct task_place *place = task_place(pid);
	struct task fresh = {};

	if (!place->pid && take_place(pid & (TASK_PLACES - 1), pid)) {
		place->task = fresh;
		place->pid = pid;
		return 0;
	}
	any_task = 1;
	bpf_map_update_elem(&tasks, &pid, &fresh, BPF_NOEXIST);
	return 0;
}

static __always_inline struct task *make_task(__u32 pid)
{
	struct task *task = task_of(pid);

	if (task)
		return task;
	add_task(pid);
	return task_of(pid);
}

static __always_inline void end_checkpoint(struct task *task)
{
	if (task->checkpointing) {
		task->checkpointing = 0;
		change(&checkpoints, -1);
	}
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_ends, struct task_struct *ending)
{
	__u32 pid = ending->pid, at = pid & (TASK_PLACES - 1);
	struct task_place *place = task_place(pid);
	struct task *task = task_of(pid);

	if (!task)
		return 0;
	if (task->handle_from)
		change(&starting, -1); /* it did not start: see forget_start() */
	end_checkpoint(task);
	if (place->pid != pid) {
		bpf_map_delete_elem(&tasks, &pid);
		return 0;
	}
	place->pid = 0;
	bpf_map_delete_elem(&taken, &at);
	return 0;
}

/* A kernel thread works for the owner of an inode; 0: of none. */
static __always_inline int work_for(__u64 ino)
{
	struct task_struct *current = current_task();
	struct task *task;

	if (!is_kernel_thread(current))
		return 0;
	task = ino ? make_task(current->pid) : task_of(current->pid);
	if (task)
		task->ino = ino;
	return 0;
}

#endif
