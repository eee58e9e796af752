/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Journals in memory (nvjournal/kernel). The task that needs a commit does it
 * itself, or waits for the task that does. So a commit begins when a task
 * requests it. It has these phases:
 *   lock   until the handles of its transactions have stopped, and the blocks that
 *          they left to the commit are in the log
 *   data   until ordered data is on the disk
 *   flush  of the disk's cache
 *   log    the records of the commit, from the processor's caches to memory
 *
 * A transaction of such a journal has a number of 48 bits, and some are
 * committed together. So commits have numbers here, from 1 on.
 *
 * The modules have no BTF, so these programs attach to raw tracepoints. They are
 * loaded while such a file system is mounted.
 */
#ifndef DAYBOOK_BLAME_MEMORY_H
#define DAYBOOK_BLAME_MEMORY_H

#include "culprits.h"
#include "starts.h"
#include "syncs.h"

static __always_inline void memory_commit_begins(struct journal *journal, __u64 now)
{
	__u32 number = last_commit(journal)->tid + 1, next = (journal->last + 1) & (COMMITS - 1);

	journal->commits[next] = (struct commit){.start = now, .tid = number, .memory = 1};
	journal->last = next;
	if (!journal->locked) {
		journal->locked = 1;
		change(&locked, 1);
	}
	if (!journal->committing) {
		journal->committing = 1;
		change(&committing, 1);
		change(&active, 1);
	}
}

/* A task needs the commit of transaction tid. */
static __always_inline int memory_request(__u32 dev, __u64 tid)
{
	struct task *task = make_task((__u32)bpf_get_current_pid_tgid());
	struct journal *journal = make_journal(dev);
	__u64 now = bpf_ktime_get_ns();

	if (!journal || !task)
		return 0;
	task->requested = 1;
	if (!task->commit_from)
		task->commit_from = now;
	if (tid > journal->wanted)
		journal->wanted = tid;
	/* A commit that writes its records ends without this transaction. */
	if (!journal->committing || last_commit(journal)->logging)
		memory_commit_begins(journal, now);
	return 0;
}

/*
 * No handle of transaction tid is open. The commit can be one that no task has
 * requested: it makes room in the log, or follows another.
 */
static __always_inline int memory_start(__u32 dev, __u64 tid)
{
	struct task *task = make_task((__u32)bpf_get_current_pid_tgid());
	struct journal *journal = make_journal(dev);
	__u64 now = bpf_ktime_get_ns();
	struct commit *commit;

	if (!journal || !task)
		return 0;
	commit = last_commit(journal);
	if (!journal->committing || commit->flushing) {
		__u64 from = now;

		if (journal->committing && !commit->end) {
			if (commit->logging)
				from = commit->logging;
			commit->end = from;
		}
		memory_commit_begins(journal, from);
		commit = last_commit(journal);
	}
	commit->flushing = now;
	commit->memory_tid = tid;
	ends_locking(journal);
	task->commit_dev = dev;
	task->page_next = 0;
	task->in_data = 0;
	if (!journal->ordering) {
		journal->ordering = 1;
		change(&ordering, 1);
	}
	return 0;
}

/* All data is on the disk. */
static __always_inline int memory_logs(__u32 dev)
{
	struct task *task = task_of((__u32)bpf_get_current_pid_tgid());
	struct journal *journal = journal_of(dev);

	if (task)
		task->commit_dev = 0;
	if (!journal || !journal->committing)
		return 0;
	last_commit(journal)->logging = bpf_ktime_get_ns();
	ends_ordering(journal);
	return 0;
}

/*
 * A task returns from the commit of transaction tid (0: of all). The first one
 * that does so ends the commit. If another task waits for a later transaction, the
 * next commit begins.
 */
static __always_inline int memory_end(__u32 dev, __u64 tid, __u64 committed)
{
	struct task *task = task_of((__u32)bpf_get_current_pid_tgid());
	struct journal *journal = journal_of(dev);
	__u64 now = bpf_ktime_get_ns();
	struct commit *commit;
	__u32 i;

	if (task)
		task->requested = 0;
	if (!journal || !journal->committing)
		return 0;
	for (i = 0; i < 2; i++) {
		commit = &journal->commits[(journal->last - i) & (COMMITS - 1)];
		if (commit->logging && !commit->end && commit->memory_tid <= committed)
			commit->end = now;
	}
	commit = last_commit(journal);
	/* Nothing was logged in a transaction that is requested and not committed. */
	if (!tid || tid >= journal->wanted)
		journal->wanted = 0;
	if (!commit->end && (commit->flushing || journal->wanted > committed))
		return 0;
	if (!commit->end)
		commit->end = now;
	if (journal->wanted > committed) {
		memory_commit_begins(journal, now);
		return 0;
	}
	ends_locking(journal);
	ends_ordering(journal);
	journal->committing = 0;
	change(&committing, -1);
	change(&active, -1);
	return 0;
}

/* A handle starts while a commit waits for others: it is in a later transaction. */
static __always_inline int memory_handle_starts(__u32 dev)
{
	struct journal *journal;
	struct task *task;

	if (locked) {
		journal = journal_of(dev);
		task = journal && journal->locked ? make_task(current_task()->pid) : NULL;
		if (task)
			task->later = last_commit(journal)->tid;
	}
	return handle_started(dev, true);
}

static __always_inline int memory_handle_ends(__u32 dev)
{
	struct journal *journal;

	if (!locked)
		return 0;
	journal = journal_of(dev);
	if (!journal || !journal->locked)
		return 0;
	return hold_commit(dev, last_commit(journal));
}

static __always_inline int memory_writes_home(__u32 dev)
{
	struct journal *journal;

	if (!starting)
		return 0;
	journal = make_journal(dev);
	if (journal)
		journal->home_at = bpf_ktime_get_ns();
	return 0;
}

/*
 * A transaction waits for a page that the transaction of an inode has locked. This is
 * the same as a commit that waits for that one's handle.
 */
static __always_inline int memory_page_wait(__u64 ino)
{
	struct task_struct *current = current_task();
	struct task *task;

	if (is_kernel_thread(current))
		return 0;
	task = make_task(current->pid);
	if (!task)
		return 0;
	task->page_from = bpf_ktime_get_ns();
	task->page_ino = ino;
	return 0;
}

static __always_inline int memory_page_waited(__u32 dev)
{
	struct task_struct *current = current_task();
	struct task *task = task_of(current->pid);
	struct journal *journal = make_journal(dev);
	struct held_key holder = {.dev = dev};
	struct wait_key key = {.dev = dev, .memory = 1};
	struct wait *wait;
	__u64 ns, *sum;

	if (!task || !task->page_from || !journal)
		return 0;
	ns = bpf_ktime_get_ns() - task->page_from;
	task->page_from = 0;
	if (!task->sync_from && ns < HANDLE_WAITED)
		return 0;
	key.cgroup = cgroup_of(current);
	key.operation = task->sync_from ? task->operation : HANDLE;
	key.tid = holder.tid = last_commit(journal)->tid;
	wait = wait_of(&key);
	if (!wait)
		return 0;
	add(wait, PHASE_LOCK, ns);
	if (task->sync_from)
		task->handle_ns += ns;
	else
		count_call(dev, key.cgroup, HANDLE, ns);
	holder.ino = task->page_ino;
	if (!holder.ino)
		return 0;
	sum = bpf_map_lookup_elem(&held, &holder);
	if (sum)
		__sync_fetch_and_add(sum, ns);
	else if (bpf_map_update_elem(&held, &holder, &ns, BPF_NOEXIST))
		count_lost();
	return 0;
}

static __always_inline int memory_written(void)
{
	struct task *task = task_of((__u32)bpf_get_current_pid_tgid());

	if (task && task->sync_from)
		task->written_at = bpf_ktime_get_ns();
	return 0;
}

/* The tracepoints of a journal in memory, which have the prefix of its module. */
#define MEMORY_JOURNAL(module)                                                                     \
	SEC("raw_tp/" #module "_request_commit")                                                   \
	int BPF_PROG(module##_request, __u64 dev, __u64 tid)                                       \
	{                                                                                          \
		return memory_request((__u32)dev, tid);                                            \
	}                                                                                          \
	SEC("raw_tp/" #module "_start_commit")                                                     \
	int BPF_PROG(module##_start, __u64 dev, __u64 tid)                                         \
	{                                                                                          \
		return memory_start((__u32)dev, tid);                                              \
	}                                                                                          \
	SEC("raw_tp/" #module "_commit_logging")                                                   \
	int BPF_PROG(module##_logging, __u64 dev)                                                  \
	{                                                                                          \
		return memory_logs((__u32)dev);                                                    \
	}                                                                                          \
	SEC("raw_tp/" #module "_end_commit")                                                       \
	int BPF_PROG(module##_end, __u64 dev, __u64 tid, __u64 committed)                          \
	{                                                                                          \
		return memory_end((__u32)dev, tid, committed);                                     \
	}                                                                                          \
	SEC("raw_tp/" #module "_write_home")                                                       \
	int BPF_PROG(module##_home, __u64 dev)                                                     \
	{                                                                                          \
		return memory_writes_home((__u32)dev);                                             \
	}

MEMORY_JOURNAL(jbd2nvj)
MEMORY_JOURNAL(jfsnvj)

/* Those of its file system. */
#define MEMORY_SYNCS(module)                                                                       \
	SEC("raw_tp/" #module "_sync_file_enter")                                                  \
	int BPF_PROG(module##_sync_begins, struct file *file, int datasync)                        \
	{                                                                                          \
		return sync_begins(datasync, true);                                                \
	}                                                                                          \
	SEC("raw_tp/" #module "_sync_file_exit")                                                   \
	int BPF_PROG(module##_sync_ends, struct inode *inode)                                      \
	{                                                                                          \
		return inode ? sync_ends(BPF_CORE_READ(inode, i_sb, s_dev)) : 0;                   \
	}

MEMORY_SYNCS(ext4nvj)
MEMORY_SYNCS(jfsnvj)

SEC("raw_tp/jbd2nvj_handle_start")
int BPF_PROG(jbd2nvj_handle_starts, __u64 dev)
{
	return memory_handle_starts((__u32)dev);
}

SEC("raw_tp/jbd2nvj_handle_stats")
int BPF_PROG(jbd2nvj_handle_ends, __u64 dev)
{
	return memory_handle_ends((__u32)dev);
}

/* Programs of ext4's events, as in starts.h and culprits.h. */
#define EXT4NVJ(event, call)                                                                       \
	SEC("raw_tp/ext4nvj_" #event)                                                              \
	int BPF_PROG(ext4nvj_##event, struct inode *inode)                                         \
	{                                                                                          \
		return call;                                                                       \
	}

EXT4NVJ(journal_start_sb, measure_handle())
EXT4NVJ(journal_start_inode, measure_handle())
EXT4NVJ(journal_start, measure_handle())
EXT4NVJ(writepages, work_for(BPF_CORE_READ(inode, i_ino)))
EXT4NVJ(writepages_result, work_for(0))
EXT4NVJ(ext_handle_unwritten_extents, work_for(BPF_CORE_READ(inode, i_ino)))

/* Programs of JFS's events (nvjournal/kernel/jfs/trace.h). */
SEC("raw_tp/jfsnvj_sync_file_written")
int BPF_PROG(jfsnvj_written)
{
	return memory_written();
}

SEC("raw_tp/jfsnvj_transaction_wait")
int BPF_PROG(jfsnvj_handle_waits)
{
	return measure_handle();
}

SEC("raw_tp/jfsnvj_transaction_start")
int BPF_PROG(jfsnvj_handle_starts, __u64 dev)
{
	return memory_handle_starts((__u32)dev);
}

/* A kernel thread that commits an inode, as writeback does, works for its owner. */
SEC("raw_tp/jfsnvj_transaction_stats")
int BPF_PROG(jfsnvj_handle_ends, __u64 dev, __u64 tid, struct inode *inode)
{
	work_for(inode ? BPF_CORE_READ(inode, i_ino) : 0);
	return memory_handle_ends((__u32)dev);
}

SEC("raw_tp/jfsnvj_page_wait")
int BPF_PROG(jfsnvj_page_wait, __u64 dev, __u64 ino)
{
	return memory_page_wait(ino);
}

SEC("raw_tp/jfsnvj_page_waited")
int BPF_PROG(jfsnvj_page_waited, __u64 dev)
{
	return memory_page_waited((__u32)dev);
}

#endif
