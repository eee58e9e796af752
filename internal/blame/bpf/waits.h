/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits: how long each sync and each start of a handle took, and which phase of
 * which commit it waited for.
 */
#ifndef DAYBOOK_BLAME_WAITS_H
#define DAYBOOK_BLAME_WAITS_H

#include "state.h"

/*
 * A log-linear histogram: 8 buckets for each power of two. Bucket 0 is all
 * below 1024 ns, the last is all from 2^37 ns (137 s) on. The same is in
 * histogram.go.
 */
#define FIRST_POWER 10
#define LAST_POWER 37
#define STEPS_LOG2 3

static __always_inline __u32 power_of(__u64 ns)
{
	__u32 power = 0;

	if (ns >> 32)
		power += 32, ns >>= 32;
	if (ns >> 16)
		power += 16, ns >>= 16;
	if (ns >> 8)
		power += 8, ns >>= 8;
	if (ns >> 4)
		power += 4, ns >>= 4;
	if (ns >> 2)
		power += 2, ns >>= 2;
	return power + (ns >> 1 ? 1 : 0);
}

static __always_inline __u16 bucket_of(__u64 ns)
{
	__u32 power = power_of(ns);

	if (power < FIRST_POWER)
		return 0;
	if (power >= LAST_POWER)
		return 1 + ((LAST_POWER - FIRST_POWER) << STEPS_LOG2);
	return 1 + ((power - FIRST_POWER) << STEPS_LOG2) +
	       ((ns >> (power - STEPS_LOG2)) & ((1 << STEPS_LOG2) - 1));
}

static __always_inline void count_call(__u32 dev, __u64 cgroup, __u32 operation, __u64 ns)
{
	struct bucket_key key = {
		.cgroup = cgroup, .dev = dev, .operation = operation, .bucket = bucket_of(ns)};
	__u64 one = 1, *count = bpf_map_lookup_elem(&buckets, &key);

	if (!count && bpf_map_update_elem(&buckets, &key, &one, BPF_NOEXIST) == 0)
		return;
	if (!count)
		count = bpf_map_lookup_elem(&buckets, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		count_lost();
}

static __always_inline struct wait *wait_of(struct wait_key *key)
{
	struct wait fresh = {}, *wait = bpf_map_lookup_elem(&waits, key);

	if (wait)
		return wait;
	bpf_map_update_elem(&waits, key, &fresh, BPF_NOEXIST);
	wait = bpf_map_lookup_elem(&waits, key);
	if (!wait)
		count_lost();
	return wait;
}

static __always_inline void add(struct wait *wait, enum phase phase, __u64 ns)
{
	if (ns)
		__sync_fetch_and_add(&wait->ns[phase], ns);
}

/*
 * Adds the phases of a commit. Most commits have one waiter, so that the entry is
 * new: an attempt to insert it costs less than a lookup before.
 */
static __always_inline bool put_wait(struct wait_key *key, struct wait *phases)
{
	struct wait *wait;

	if (bpf_map_update_elem(&waits, key, phases, BPF_NOEXIST) == 0)
		return true;
	wait = bpf_map_lookup_elem(&waits, key);
	if (!wait) {
		count_lost();
		return false;
	}
	add(wait, PHASE_LOCK, phases->ns[PHASE_LOCK]);
	add(wait, PHASE_DATA, phases->ns[PHASE_DATA]);
	add(wait, PHASE_LOG, phases->ns[PHASE_LOG]);
	add(wait, PHASE_FLUSH, phases->ns[PHASE_FLUSH]);
	add(wait, PHASE_OWN, phases->ns[PHASE_OWN]);
	add(wait, PHASE_REST, phases->ns[PHASE_REST]);
	return true;
}

/* Returns how long two time spans overlap. An end b of 0 is not yet. */
static __always_inline __u64 overlap(__u64 from, __u64 until, __u64 a, __u64 b)
{
	if (!b)
		b = until;
	if (!a || a >= b)
		return 0;
	if (a < from)
		a = from;
	if (b > until)
		b = until;
	return a < b ? b - a : 0;
}

/*
 * The part of a call that waits for commits. Most syncs wait for one: what no commit
 * explains is then added to the same entry, which costs less than an entry of its own.
 */
struct span {
	__u64 from;
	__u64 until;
	__u64 cgroup;
	__u32 dev;
	__u32 operation;
	__u64 own;   /* the sync's own data */
	__u64 flush; /* its own flush */
	__u64 total; /* the whole call */
	__u64 known; /* what is no commit's of that */
	__u32 one;   /* there is one commit, so that the rest can go with it */
	__u32 added; /* it did */
	__u32 ended; /* and the call is in `ended_calls` */
	__u32 pad;
};

/* Returns false if there is no space. */
static __always_inline bool put_call(struct wait_key *key, struct wait *wait, __u64 total)
{
	struct ended_call *call;
	__u32 at;

	if (ended_buffer) {
		at = __sync_fetch_and_add(&ended_second, 1);
		if (at >= ENDED_CALLS)
			return false;
		at += ENDED_CALLS;
	} else {
		at = __sync_fetch_and_add(&ended_first, 1);
		if (at >= ENDED_CALLS)
			return false;
	}
	call = bpf_map_lookup_elem(&ended_calls, &at);
	if (!call)
		return false;
	call->key = *key;
	call->total = total;
	call->wait = *wait;
	return true;
}

/*
 * Adds the part of a wait during which one commit ran, by its phases, and
 * returns its length. A commit waits for ordered data in two places: it submits
 * them before it writes the log, and it waits for pages while the log is on its
 * way. The function is not static, so that the verifier checks it once.
 */
__noinline __u64 add_commit(struct span *span, struct commit *c)
{
	__u64 from, until, whole, sum, known;
	struct wait_key key = {};
	struct wait wait = {};

	if (!span || !c)
		return 0;
	from = span->from;
	until = span->until;
	whole = overlap(from, until, c->start, c->end);
	if (!whole)
		return 0;
	wait.ns[PHASE_LOCK] = overlap(from, until, c->start, c->flushing ? c->flushing : c->end);
	if (c->memory) {
		/* The data and the flush of the disk come before the log. */
		__u64 data_end = c->logging ? c->logging : c->end;

		if (c->flushing)
			wait.ns[PHASE_DATA] =
				overlap(from, until, c->flushing, c->flush ? c->flush : data_end);
		wait.ns[PHASE_FLUSH] = overlap(from, until, c->flush, data_end);
		goto log;
	}
	wait.ns[PHASE_DATA] =
		overlap(from, until, c->data_from, c->data_until ? c->data_until : c->end);
	if (c->flushing)
		wait.ns[PHASE_DATA] +=
			overlap(from, until, c->flushing, c->logging ? c->logging : c->end);
	wait.ns[PHASE_FLUSH] = overlap(from, until, c->flush, c->end);
log:
	sum = wait.ns[PHASE_LOCK] + wait.ns[PHASE_DATA] + wait.ns[PHASE_FLUSH];
	wait.ns[PHASE_LOG] = whole > sum ? whole - sum : 0;

	sum += wait.ns[PHASE_LOG];
	if (span->one) {
		wait.ns[PHASE_OWN] = span->own;
		wait.ns[PHASE_FLUSH] += span->flush;
		known = span->known + sum;
		wait.ns[PHASE_REST] = span->total > known ? span->total - known : 0;
	}

	key.cgroup = span->cgroup;
	key.dev = span->dev;
	key.tid = c->tid;
	key.operation = span->operation;
	key.memory = c->memory;
	if (span->one && put_call(&key, &wait, span->total)) {
		span->added = 1;
		span->ended = 1;
		return sum;
	}
	if (!put_wait(&key, &wait))
		return 0;
	span->added = span->one;
	return sum;
}

/*
 * Adds the commits during a wait, the last one first. Most waits are for one, so
 * that the others are not looked at.
 */
static __always_inline __u64 add_commits(struct span *span)
{
	struct journal *journal = journal_of(span->dev);
	struct commit *commit;
	__u64 sum = 0;
	__u32 i, last;

	if (!journal || span->from >= span->until)
		return 0;
	last = journal->last;
	commit = &journal->commits[(last - 1) & (COMMITS - 1)];
	span->one = span->total && commit->end <= span->from && (commit->end || !commit->start);
	for (i = 0; i < COMMITS; i++) {
		commit = &journal->commits[(last - i) & (COMMITS - 1)];
		if (commit->end && commit->end <= span->from)
			break;
		sum += add_commit(span, commit);
	}
	return sum;
}

/* Adds the phases that are no commit's. */
static __always_inline void add_rest(struct span *span, __u64 own, __u64 checkpoint, __u64 flush,
				     __u64 rest)
{
	struct wait_key key = {
		.cgroup = span->cgroup, .dev = span->dev, .operation = span->operation};
	struct wait *wait = wait_of(&key);

	if (!wait)
		return;
	add(wait, PHASE_OWN, own);
	add(wait, PHASE_CHECKPOINT, checkpoint);
	add(wait, PHASE_FLUSH, flush);
	add(wait, PHASE_REST, rest);
}

/*
 * Ends a call with what is no commit's. The function is not static, so that the verifier
 * checks it once.
 */
__noinline int end_call(struct span *span, __u64 rest)
{
	struct wait_key key = {};
	struct wait wait = {};

	if (!span)
		return 0;
	key.cgroup = span->cgroup;
	key.dev = span->dev;
	key.operation = span->operation;
	wait.ns[PHASE_OWN] = span->own;
	wait.ns[PHASE_FLUSH] = span->flush;
	wait.ns[PHASE_REST] = rest;
	span->ended = put_call(&key, &wait, span->total);
	if (!span->ended)
		add_rest(span, span->own, 0, span->flush, rest);
	return 0;
}

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

	if (is_kernel_thread(current) || current->journal_info)
		return 0; /* nested: it has a handle */
	task = make_task(current->pid);
	if (!task)
		return 0;
	if (!task->handle_from)
		change(&starting, 1);
	task->handle_from = bpf_ktime_get_ns();
	task->checkpoint_from = 0;
	return 0;
}

static __always_inline int handle_begins(void)
{
	if (!committing && !checkpoints)
		return 0;
	return measure_handle();
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
 * A task finds the log full and checkpoints, in its own context. Others that
 * need space sleep until it has finished, as tasks that wait for I/O do
 * (mutex_lock_io): see sleeps().
 */
SEC("tp_btf/jbd2_checkpoint")
int BPF_PROG(checkpoint)
{
	struct task *task = make_task((__u32)bpf_get_current_pid_tgid());
	__u64 now = bpf_ktime_get_ns();

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
	if (task->checkpointing) {
		task->checkpointing = 0;
		change(&checkpoints, -1);
	}
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
