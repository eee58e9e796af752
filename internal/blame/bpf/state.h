/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The state of the programs: what each task waits for, the times of the last
 * commits of each journal, and the sums for user space. Each map has a maximum
 * size. If a hash map is full, its losses are counted (lost).
 */
#ifndef DAYBOOK_BLAME_STATE_H
#define DAYBOOK_BLAME_STATE_H

/* of internal/journal/bpf: the kernel's types, and the rules for cgroups */
#include "kernel.h"

#include "tasks.h"

#include <bpf/bpf_tracing.h>

/* further types of the kernel; see kernel.h */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct task_struct___sleeping {
	unsigned in_iowait : 1;
};

/* arch/x86/include/asm/ptrace.h */
struct pt_regs___x86 {
	unsigned long orig_ax;
};

/* arch/arm64/include/asm/ptrace.h */
struct pt_regs___arm64 {
	int syscallno;
};

enum req_flag_bits___flush {
	__REQ_PREFLUSH = 18,
};

#pragma clang attribute pop

#define REQ_OP_BITS 0xff /* REQ_OP_MASK */

/* In the order of `operations` in events.go. */
enum operation {
	FSYNC = 0,
	FDATASYNC = 1,
	MSYNC = 2,
	WRITE = 3,  /* with O_SYNC or O_DSYNC */
	HANDLE = 4, /* the start of a handle outside of a sync, if it had to wait */
};

/* In the order of `phases` in events.go. */
enum phase {
	PHASE_LOCK = 0,       /* a commit waits for open handles */
	PHASE_DATA = 1,       /* a commit waits for ordered data */
	PHASE_LOG = 2,        /* a commit writes the log */
	PHASE_FLUSH = 3,      /* the commit record, with the flush of the disk's cache */
	PHASE_CHECKPOINT = 4, /* a checkpoint frees space in the log */
	PHASE_OWN = 5,        /* the call writes its own data */
	PHASE_REST = 6,
	PHASES = 7,
};

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

/* When a commit came to each phase, in nanoseconds; 0: not yet, or never. */
struct commit {
	__u64 start;
	__u64 flushing;
	__u64 logging;
	__u64 data_from;
	__u64 data_until;
	__u64 flush;
	__u64 end;
	__u64 memory_tid; /* of a journal in memory: its own number of 48 bits */
	__u32 tid;        /* of a journal in memory: the number of the commit */
	__u32 memory;     /* 1: of a journal in memory */
};

/* A wait that spans more commits has a part that no phase explains. */
#define COMMITS 4

struct journal {
	struct commit commits[COMMITS];
	__u32 last; /* index of the last commit, modulo COMMITS */
	__u8 committing;
	__u8 locked;   /* the commit waits for handles */
	__u8 ordering; /* the commit waits for data */
	__u8 pad;
	__u64 wanted;  /* the greatest transaction for whose commit a task waits */
	__u64 home_at; /* when a checkpoint last wrote a block home */
};

struct wait_key {
	__u64 cgroup;
	__u32 dev;
	__u32 tid; /* 0: the time is of no transaction */
	__u32 operation;
	__u32 memory; /* as in struct commit */
};

struct wait {
	__u64 ns[PHASES];
};

struct bucket_key {
	__u64 cgroup;
	__u32 dev;
	__u16 operation;
	__u16 bucket;
};

/* A call that has ended. Most wait for one commit at most: that is all of their time. */
struct ended_call {
	struct wait_key key;
	__u64 total;
	struct wait wait;
};

/* For whom a handle was open: a cgroup, or who owns an inode. */
struct held_key {
	__u64 cgroup; /* 0: the owner of the inode */
	__u64 ino;
	__u32 dev;
	__u32 tid;
};

struct ordered_key {
	__u64 ino;
	__u32 dev;
	__u32 tid;
};

struct ordered {
	__u64 bytes; /* that the disk completed while the commit waited for data */
	__u64 waits; /* how many pages the commit waited for; 0: the inode is not ordered */
};

/*
 * Places: most lookups in a hash map are avoided by an array in front of it. A key
 * has one place in the array. The place belongs to the first key that takes it;
 * other keys of the same place are in the hash map. A key is never in both. The arrays
 * are global variables, because to find a place in one takes a third of the instructions
 * that an array map takes.
 */
#define TASK_PLACES 4096 /* a power of 2 */
#define JOURNAL_PLACES_LOG2 7

/* Free again when the thread ends. */
struct task_place {
	__u32 pid; /* 0: free */
	__u32 pad;
	struct task task;
};

/* Never freed. */
struct journal_place {
	__u32 dev; /* 0: free */
	__u32 pad;
	struct journal journal;
};

struct task_place task_places[TASK_PLACES];
struct journal_place journal_places[1 << JOURNAL_PLACES_LOG2];

/*
 * place -> the key that has it: if two processors take a place at the same time, the
 * one that inserts the entry gets it. The places of journals have the highest bit set.
 */
#define OF_JOURNAL (1U << 31)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASK_PLACES + (1 << JOURNAL_PLACES_LOG2));
	__type(key, __u32);
	__type(value, __u32);
} taken SEC(".maps");

/* Entries are reused, so that a call costs little. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct task);
} tasks SEC(".maps");

/* device of the file system -> its journal */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct journal);
} journals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct wait_key);
	__type(value, struct wait);
} waits SEC(".maps");

/* a histogram for each cgroup, device and operation; only the used buckets */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct bucket_key);
	__type(value, __u64);
} buckets SEC(".maps");

/*
 * The calls that have ended since user space read them: to write one here costs less
 * than to find its entries in `buckets` and `waits`. There are two buffers. User space
 * makes the programs change to the other, waits until none is at work in the first,
 * and reads it. What has no space is added to the maps.
 */
#define ENDED_CALLS 8192 /* of each buffer, a power of 2 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * ENDED_CALLS);
	__type(key, __u32);
	__type(value, struct ended_call);
} ended_calls SEC(".maps");

__u32 ended_buffer; /* the one in use: 0 or 1 */
/* The calls in each buffer; those above ENDED_CALLS had no space. */
__u32 ended_first;
__u32 ended_second;

/* nanoseconds for which handles were open while the commit waited for them */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct held_key);
	__type(value, __u64);
} held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct ordered_key);
	__type(value, struct ordered);
} ordered SEC(".maps");

/* what did not fit into a map */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

/*
 * How much is in progress. Most events happen while nothing is, and end after
 * one comparison. A count that is too high, because a task died, costs time
 * only.
 */
int active = 0;     /* syncs and commits */
int committing = 0; /* commits */
int locked = 0;     /* commits that wait for handles */
int ordering = 0;   /* commits that wait for data */
int starting = 0;   /* starts of handles during a commit or a checkpoint */
int checkpoints = 0;

/* Say that `tasks` and `journals` have entries. */
int any_task = 0;
int any_journal = 0;

static __always_inline void change(int *count, int by)
{
	__sync_fetch_and_add(count, by);
}

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lost, &zero);

	if (n)
		*n += 1;
}

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

/* Returns whether the place was free. */
static __always_inline bool take_place(__u32 at, __u32 by)
{
	return bpf_map_update_elem(&taken, &at, &by, BPF_NOEXIST) == 0;
}

/* The functions that make an entry are not static, so that the verifier checks them once. */
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

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_ends, struct task_struct *ending)
{
	__u32 pid = ending->pid, at = pid & (TASK_PLACES - 1);
	struct task_place *place = task_place(pid);

	if (place->pid != pid)
		return 0;
	place->pid = 0;
	bpf_map_delete_elem(&taken, &at);
	return 0;
}

static __always_inline __u32 journal_index(__u32 dev)
{
	return dev * 0x9e3779b1U >> (32 - JOURNAL_PLACES_LOG2);
}

static __always_inline struct journal *journal_of(__u32 dev)
{
	struct journal_place *place = &journal_places[journal_index(dev)];

	if (place->dev == dev)
		return &place->journal;
	if (!any_journal)
		return NULL;
	return bpf_map_lookup_elem(&journals, &dev);
}

const struct journal fresh_journal = {};

__noinline int add_journal(__u32 dev)
{
	__u32 at = journal_index(dev);
	struct journal_place *place = &journal_places[at];

	if (!place->dev && take_place(at | OF_JOURNAL, dev)) {
		place->dev = dev;
		return 0;
	}
	any_journal = 1;
	bpf_map_update_elem(&journals, &dev, &fresh_journal, BPF_NOEXIST);
	return 0;
}

static __always_inline struct journal *make_journal(__u32 dev)
{
	struct journal *journal = journal_of(dev);

	if (journal)
		return journal;
	add_journal(dev);
	return journal_of(dev);
}

static __always_inline struct commit *last_commit(struct journal *journal)
{
	return &journal->commits[journal->last & (COMMITS - 1)];
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
