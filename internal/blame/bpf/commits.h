/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Commits: when each one came to which phase.
 */
#ifndef DAYBOOK_BLAME_COMMITS_H
#define DAYBOOK_BLAME_COMMITS_H

#include "journals.h"
#include "lost.h"
#include "progress.h"
#include "waiters.h"

/* further types of the kernel; see kernel.h */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___sleeping {
	unsigned in_iowait : 1;
};

enum req_flag_bits___flush {
	__REQ_PREFLUSH = 18,
};

#pragma clang attribute pop

struct ordered_key {
	__u64 ino;
	__u32 dev;
	__u32 tid;
};

struct ordered {
	__u64 bytes; /* that the disk completed while the commit waited for data */
	__u64 waits; /* how many pages the commit waited for; 0: the inode is not ordered */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct ordered_key);
	__type(value, struct ordered);
} ordered SEC(".maps");

static __always_inline struct journal *journal_at(struct journal_s *of)
{
	return of ? journal_of(of->j_fs_dev->bd_dev) : NULL;
}

static __always_inline void ends_ordering(struct journal *journal)
{
	if (journal->ordering) {
		journal->ordering = 0;
		change(&ordering, -1);
	}
}

static __always_inline void ends_locking(struct journal *journal)
{
	if (journal->locked) {
		journal->locked = 0;
		change(&locked, -1);
	}
}

SEC("tp_btf/jbd2_start_commit")
int BPF_PROG(commit_starts, struct journal_s *of, struct transaction_s *transaction)
{
	struct journal *journal;
	struct task *task;
	__u32 dev, next;

	if (!of || !transaction)
		return 0;
	dev = of->j_fs_dev->bd_dev;
	journal = make_journal(dev);
	task = make_task((__u32)bpf_get_current_pid_tgid());
	if (!journal || !task)
		return 0;
	next = (journal->last + 1) & (COMMITS - 1);
	journal->commits[next] =
		(struct commit){.start = bpf_ktime_get_ns(), .tid = transaction->t_tid};
	journal->last = next;
	task->commit_dev = dev;
	task->page_next = 0;
	task->in_data = 0;
	if (!journal->locked) {
		journal->locked = 1;
		change(&locked, 1);
	}
	if (!journal->committing) {
		journal->committing = 1;
		change(&committing, 1);
		change(&active, 1);
	}
	return 0;
}

SEC("tp_btf/jbd2_commit_flushing")
int BPF_PROG(commit_flushes, struct journal_s *of)
{
	struct journal *journal = journal_at(of);

	if (!journal || !journal->committing)
		return 0;
	last_commit(journal)->flushing = bpf_ktime_get_ns();
	ends_locking(journal);
	if (!journal->ordering) {
		journal->ordering = 1;
		change(&ordering, 1);
	}
	return 0;
}

SEC("tp_btf/jbd2_commit_logging")
int BPF_PROG(commit_logs, struct journal_s *of)
{
	struct journal *journal = journal_at(of);

	if (journal && journal->committing)
		last_commit(journal)->logging = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/jbd2_end_commit")
int BPF_PROG(commit_ends, struct journal_s *of)
{
	struct task *task = task_of((__u32)bpf_get_current_pid_tgid());
	struct journal *journal = journal_at(of);
	struct commit *commit;

	if (!journal || !journal->committing)
		return 0;
	commit = last_commit(journal);
	commit->end = bpf_ktime_get_ns();
	if (commit->data_from && !commit->data_until)
		commit->data_until = commit->end;
	ends_ordering(journal);
	ends_locking(journal);
	journal->committing = 0;
	change(&committing, -1);
	change(&active, -1);
	if (task)
		task->commit_dev = 0;
	return 0;
}

static __always_inline struct ordered *ordered_of(__u32 dev, __u32 tid, __u64 ino)
{
	struct ordered_key key = {.dev = dev, .tid = tid, .ino = ino};
	struct ordered fresh = {}, *sums = bpf_map_lookup_elem(&ordered, &key);

	if (sums)
		return sums;
	bpf_map_update_elem(&ordered, &key, &fresh, BPF_NOEXIST);
	sums = bpf_map_lookup_elem(&ordered, &key);
	if (!sums)
		count_lost();
	return sums;
}

/* The commit submits the data of an inode itself. */
SEC("tp_btf/jbd2_submit_inode_data")
int BPF_PROG(data_submitted, struct inode *inode)
{
	struct journal *journal;
	struct ordered *sums;
	__u32 dev;

	if (!inode)
		return 0;
	dev = inode->i_sb->s_dev;
	journal = journal_of(dev);
	if (!journal || !journal->committing)
		return 0;
	sums = ordered_of(dev, last_commit(journal)->tid, inode->i_ino);
	if (sums)
		__sync_fetch_and_add(&sums->waits, 1);
	return 0;
}

/*
 * The commit waits for a page of an inode that others submitted. It has written
 * the log before, but could not have ended sooner: data that is still on its way
 * then delays it from the beginning of the log on.
 */
static __always_inline int awaits_data(struct address_space *mapping)
{
	struct journal *journal;
	struct ordered *sums;
	struct commit *commit;
	struct inode *inode;
	struct task *task;

	if (!ordering)
		return 0;
	task = task_of((__u32)bpf_get_current_pid_tgid());
	if (!task || !task->commit_dev || !mapping)
		return 0;
	journal = journal_of(task->commit_dev);
	inode = mapping->host;
	if (!journal || !inode)
		return 0;
	commit = last_commit(journal);
	if (!commit->data_from)
		commit->data_from = commit->logging ? commit->logging : bpf_ktime_get_ns();
	commit->data_until = 0;
	task->page_next = 1;
	task->in_data = 1;
	sums = ordered_of(task->commit_dev, commit->tid, inode->i_ino);
	if (sums)
		__sync_fetch_and_add(&sums->waits, 1);
	return 0;
}

SEC("tp_btf/folio_wait_writeback")
int BPF_PROG(data_awaited, struct folio *folio, struct address_space *mapping)
{
	return awaits_data(mapping);
}

/* Before 5.16. */
SEC("tp_btf/wait_on_page_writeback")
int BPF_PROG(page_awaited, struct page *page, struct address_space *mapping)
{
	return awaits_data(mapping);
}

static __always_inline bool sleeps_for_io(struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD((struct task_struct___sleeping *)task, in_iowait);
}

/*
 * A task goes to sleep. A sync sleeps for I/O while it writes its own data, and
 * otherwise while it waits for a commit. The start of a handle sleeps for I/O
 * only while it waits for space in the log. A commit that sleeps without a page
 * of ordered data to wait for has finished with them.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(sleeps, bool preempted, struct task_struct *previous)
{
	struct journal *journal;
	struct task *task;

	if (preempted || (!active && !starting) || !previous->pid)
		return 0;
	task = task_of(previous->pid);
	if (!task)
		return 0;
	if (task->handle_from && !task->checkpoint_from && sleeps_for_io(previous))
		task->checkpoint_from = bpf_ktime_get_ns();
	if (task->sync_from) {
		if (task->memory)
			return 0; /* memory.h knows when it waits for a commit */
		if (!sleeps_for_io(previous)) {
			if (!task->commit_from)
				task->commit_from = bpf_ktime_get_ns();
		} else if (!task->flush_from) {
			task->commit_from = 0;
		}
		return 0;
	}
	if (!task->commit_dev || !task->in_data)
		return 0;
	if (task->page_next) {
		task->page_next = 0;
		return 0;
	}
	task->in_data = 0;
	journal = journal_of(task->commit_dev);
	if (journal)
		last_commit(journal)->data_until = bpf_ktime_get_ns();
	return 0;
}

/* The flush of the disk's cache begins: of a commit, or of a sync itself. */
static __always_inline int flush_begins(struct bio *bio)
{
	struct journal *journal;
	struct commit *commit;
	struct task *task;
	__u64 now;

	if (!active)
		return 0;
	if (!(bio->bi_opf >> bpf_core_enum_value(enum req_flag_bits___flush, __REQ_PREFLUSH) & 1))
		return 0;
	task = task_of((__u32)bpf_get_current_pid_tgid());
	if (!task)
		return 0;
	now = bpf_ktime_get_ns();
	if (task->sync_from && !task->flush_from && !task->requested)
		task->flush_from = now;
	if (!task->commit_dev)
		return 0;
	journal = journal_of(task->commit_dev);
	if (!journal)
		return 0;
	commit = last_commit(journal);
	if (commit->flush || (!commit->logging && !commit->memory))
		return 0;
	commit->flush = now;
	if (task->in_data)
		commit->data_until = now;
	task->in_data = 0;
	ends_ordering(journal);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue, struct bio *bio)
{
	return flush_begins(bio);
}

/* Until 5.11 the first argument was the request queue. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue_of, void *queue, struct bio *bio)
{
	return flush_begins(bio);
}

#endif
