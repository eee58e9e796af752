/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Culprits: whose handles a commit waited for, and whose data. Who dirtied the
 * blocks of a transaction is known from internal/journal.
 */
#ifndef DAYBOOK_BLAME_CULPRITS_H
#define DAYBOOK_BLAME_CULPRITS_H

#include "commits.h"
#include "conversions.h"
#include "pages.h"

#define REQ_OP_BITS 0xff /* REQ_OP_MASK */

/* For whom a handle was open: a cgroup, or who owns an inode. */
struct held_key {
	__u64 cgroup; /* 0: the owner of the inode */
	__u64 ino;
	__u32 dev;
	__u32 tid;
};

/* nanoseconds for which handles were open while the commit waited for them */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct held_key);
	__type(value, __u64);
} held SEC(".maps");

/*
 * Adds the time for which the handle of this task was open since the commit
 * waits for handles. The handle ends, or restarts, or is still at work.
 */
static __always_inline int hold_commit(__u32 dev, struct commit *commit)
{
	struct held_key key = {.dev = dev, .tid = commit->tid};
	struct task_struct *current = current_task();
	struct task *task = make_task(current->pid);
	__u64 now, from, ns, *sum;
	struct inode *inode;

	if (!task || (commit->memory && task->later == commit->tid))
		return 0;
	now = bpf_ktime_get_ns();
	from = commit->start > task->held_until ? commit->start : task->held_until;
	task->held_until = now;
	if (from >= now)
		return 0;
	ns = now - from;
	if (is_kernel_thread(current)) {
		inode = converted_inode();
		key.ino = inode ? BPF_CORE_READ(inode, i_ino) : task->ino;
	}
	if (!key.ino)
		key.cgroup = cgroup_of(current);
	sum = bpf_map_lookup_elem(&held, &key);
	if (sum)
		__sync_fetch_and_add(sum, ns);
	else if (bpf_map_update_elem(&held, &key, &ns, BPF_NOEXIST))
		count_lost();
	return 0;
}

static __always_inline int hold(__u32 dev, __u32 tid)
{
	struct journal *journal = journal_of(dev);
	struct commit *commit;

	if (!journal || !journal->locked)
		return 0;
	commit = last_commit(journal);
	return commit->tid == tid ? hold_commit(dev, commit) : 0;
}

SEC("tp_btf/jbd2_handle_stats")
int BPF_PROG(handle_ends, __u64 dev, __u64 tid)
{
	if (!locked)
		return 0;
	return hold((__u32)dev, (__u32)tid);
}

/*
 * A handle that restarts leaves its transaction before jbd2 reports it. So its
 * time is added at the places that a truncate comes through before.
 */
static __always_inline int handle_works(void)
{
	struct jbd2_journal_handle *handle;
	struct transaction_s *transaction;

	if (!locked)
		return 0;
	handle = current_task()->journal_info;
	if (!handle)
		return 0;
	transaction = BPF_CORE_READ(handle, h_transaction);
	return hold(BPF_CORE_READ(transaction, t_journal, j_fs_dev, bd_dev),
		    BPF_CORE_READ(transaction, t_tid));
}

SEC("tp_btf/ext4_discard_preallocations")
int BPF_PROG(works_discard)
{
	return handle_works();
}

SEC("tp_btf/ext4_free_blocks")
int BPF_PROG(works_free)
{
	return handle_works();
}

SEC("tp_btf/ext4_ext_rm_leaf")
int BPF_PROG(works_leaf)
{
	return handle_works();
}

/*
 * Writeback works for the owner of an inode. These events, unlike ext4_writepages, do
 * not happen in the syncs of processes. Other file systems have them, too.
 */
SEC("tp_btf/writeback_single_inode_start")
int BPF_PROG(work_writeback, struct inode *inode)
{
	if (!inode || inode->i_sb->s_magic != EXT4_SUPER_MAGIC)
		return 0;
	return work_for(inode->i_ino);
}

SEC("tp_btf/writeback_single_inode")
int BPF_PROG(work_writeback_end, struct inode *inode)
{
	if (!inode || inode->i_sb->s_magic != EXT4_SUPER_MAGIC)
		return 0;
	return work_for(0);
}

/* Attached only if converted_inode() does not know the functions of the kernel. */
SEC("tp_btf/ext4_ext_handle_unwritten_extents")
int BPF_PROG(work_conversion, struct inode *inode)
{
	return inode ? work_for(inode->i_ino) : 0;
}

/* Returns the inode of the file whose page a bio writes, or NULL. */
static __always_inline struct inode *written_file(struct bio *bio)
{
	struct bio_vec *vectors = bio->bi_io_vec;
	struct inode *inode;

	if (!vectors)
		return NULL;
	inode = inode_of_page(vectors->bv_page);
	if (!inode || (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFBLK)
		return NULL;
	return inode;
}

/*
 * Data that the disk completes while a commit waits for data. If the inode is
 * not ordered, nobody reads the sum. All bytes of a request are its first
 * page's.
 */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, __u64 error, __u64 bytes)
{
	struct journal *journal;
	struct ordered *sums;
	struct inode *inode;
	struct bio *bio;
	__u32 dev;

	if (!ordering)
		return 0;
	bio = rq->bio;
	if (!bio || (rq->cmd_flags & REQ_OP_BITS) != REQ_OP_WRITE)
		return 0;
	/* Since 6.8 jbd2 sets this flag on its own writes. File data never has it. */
	if (bpf_core_enum_value_exists(enum req_flag_bits, __REQ_META) &&
	    bio->bi_opf >> bpf_core_enum_value(enum req_flag_bits, __REQ_META) & 1)
		return 0;
	inode = written_file(bio);
	if (!inode)
		return 0;
	dev = BPF_CORE_READ(inode, i_sb, s_dev);
	journal = journal_of(dev);
	if (!journal || !journal->ordering)
		return 0;
	sums = ordered_of(dev, last_commit(journal)->tid, BPF_CORE_READ(inode, i_ino));
	if (sums)
		__sync_fetch_and_add(&sums->bytes, (__u32)bytes);
	return 0;
}

#endif
