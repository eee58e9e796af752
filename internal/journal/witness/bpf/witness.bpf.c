// SPDX-License-Identifier: GPL-2.0
/*
 * A second count of the blocks that each cgroup dirtied first in each
 * transaction. It shares no rule with attribution.bpf.c:
 *
 *                 attribution                  here
 *   block         a credit that a handle used  a block number that is new in the
 *                                              transaction
 *   event         jbd2_handle_stats            jbd2_journal_dirty_metadata returns
 *   cgroup        the I/O controller of        bpf_get_current_cgroup_id
 *                 css_set
 *   in a kernel   the cgroup that changed the  the kernel's writeback cgroup of the
 *   thread        inode last                   inode
 *
 * It attaches to functions, which not every kernel allows. So the daemon does
 * not use it (docs/principles.md, 8): it is for tests only, and for cgroup v2
 * only.
 */
#include "../../bpf/kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* include/uapi/linux/bpf.h, in addition to those of kernel.h */
#define BPF_MAP_TYPE_ARRAY 2

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct buffer_head {
	unsigned long long b_blocknr;
};

struct transaction_s___journal {
	struct journal_s *t_journal;
};

struct bdi_writeback {
	struct cgroup_subsys_state *blkcg_css;
};

struct inode___writeback {
	struct bdi_writeback *i_wb;
};

#pragma clang attribute pop

struct block_key {
	__u64 block;
	__u32 dev;
	__u32 tid;
};

struct transaction_key {
	__u32 dev;
	__u32 tid;
};

struct dirtied_key {
	__u64 cgroup;
	__u32 dev;
	__u32 tid;
};

/* block of a transaction -> the cgroup that dirtied it first */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct block_key);
	__type(value, __u64);
} first SEC(".maps");

/*
 * Block of a transaction -> the cgroup that entered the function first. The
 * value is CONTESTED if another cgroup entered before that one had returned:
 * then the order inside of the function is unknown.
 */
#define CONTESTED (~0ULL)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct block_key);
	__type(value, __u64);
} begun SEC(".maps");

/* transaction -> blocks that two cgroups dirtied at the same time */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct transaction_key);
	__type(value, __s64);
} contested SEC(".maps");

/* (transaction, cgroup) -> blocks */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct dirtied_key);
	__type(value, __s64);
} dirtied SEC(".maps");

/* kernel thread -> the writeback cgroup of the inode that it works on */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} working SEC(".maps");

/* events that did not fit into a map */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lost, &zero);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline __u32 thread(void)
{
	return (__u32)bpf_get_current_pid_tgid();
}

/* Adds a number to the sum of a key in a map. */
static __always_inline void add_to(void *map, const void *key, __s64 blocks)
{
	__s64 *sum = bpf_map_lookup_elem(map, key);

	if (!sum) {
		if (bpf_map_update_elem(map, key, &blocks, BPF_NOEXIST) == 0)
			return;
		sum = bpf_map_lookup_elem(map, key);
	}
	if (sum)
		__sync_fetch_and_add(sum, blocks);
	else
		count_lost();
}

static __always_inline void add(__u32 dev, __u32 tid, __u64 cgroup, __s64 blocks)
{
	struct dirtied_key key = {.dev = dev, .tid = tid, .cgroup = cgroup};

	add_to(&dirtied, &key, blocks);
}

static __always_inline struct block_key key_of(struct jbd2_journal_handle *handle,
					       struct buffer_head *buffer)
{
	struct transaction_s *transaction = BPF_CORE_READ(handle, h_transaction);
	struct journal_s *journal =
		BPF_CORE_READ((struct transaction_s___journal *)transaction, t_journal);
	struct block_key key = {
		.block = BPF_CORE_READ(buffer, b_blocknr),
		.dev = BPF_CORE_READ(journal, j_fs_dev, bd_dev),
		.tid = BPF_CORE_READ(transaction, t_tid),
	};
	return key;
}

/* Returns the cgroup for which the current thread dirties blocks. */
static __always_inline __u64 dirtier(void)
{
	__u32 pid = thread();
	__u64 *whose = bpf_map_lookup_elem(&working, &pid);

	return whose ? *whose : bpf_get_current_cgroup_id();
}

SEC("fentry/jbd2_journal_dirty_metadata")
int BPF_PROG(dirty_metadata_begin, struct jbd2_journal_handle *handle, struct buffer_head *buffer)
{
	struct block_key key = key_of(handle, buffer);
	__u64 cgroup = dirtier(), *before;

	if (bpf_map_lookup_elem(&first, &key))
		return 0;
	if (bpf_map_update_elem(&begun, &key, &cgroup, BPF_NOEXIST) == 0)
		return 0;
	before = bpf_map_lookup_elem(&begun, &key);
	if (!before)
		count_lost();
	else if (*before != cgroup)
		*before = CONTESTED;
	return 0;
}

SEC("fexit/jbd2_journal_dirty_metadata")
int BPF_PROG(dirty_metadata, struct jbd2_journal_handle *handle, struct buffer_head *buffer,
	     int error)
{
	struct transaction_key transaction;
	struct block_key key;
	__u64 cgroup, *before;

	if (error)
		return 0;
	key = key_of(handle, buffer);
	if (bpf_map_lookup_elem(&first, &key))
		return 0;
	cgroup = dirtier();
	if (bpf_map_update_elem(&first, &key, &cgroup, BPF_NOEXIST)) {
		if (!bpf_map_lookup_elem(&first, &key))
			count_lost();
		return 0;
	}
	add(key.dev, key.tid, cgroup, 1);
	before = bpf_map_lookup_elem(&begun, &key);
	if (before && *before == CONTESTED) {
		transaction.dev = key.dev;
		transaction.tid = key.tid;
		add_to(&contested, &transaction, 1);
	}
	return 0;
}

/* The block was freed: it leaves the transaction and may join it again. */
SEC("fentry/jbd2_journal_forget")
int BPF_PROG(forget, struct jbd2_journal_handle *handle, struct buffer_head *buffer)
{
	struct block_key key;
	__u64 *cgroup;

	if (!buffer)
		return 0;
	key = key_of(handle, buffer);
	cgroup = bpf_map_lookup_elem(&first, &key);
	if (!cgroup)
		return 0;
	add(key.dev, key.tid, *cgroup, -1);
	bpf_map_delete_elem(&first, &key);
	bpf_map_delete_elem(&begun, &key);
	return 0;
}

static __always_inline int works_at(struct inode *inode)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct bdi_writeback *writeback;
	__u64 cgroup;
	__u32 pid = thread();

	if (!(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		return 0;
	writeback = BPF_CORE_READ((struct inode___writeback *)inode, i_wb);
	if (!writeback)
		return 0; /* the inode was never written back */
	cgroup = BPF_CORE_READ(writeback, blkcg_css, cgroup, kn, id);
	if (bpf_map_update_elem(&working, &pid, &cgroup, BPF_ANY))
		count_lost();
	return 0;
}

static __always_inline int works_no_more(void)
{
	__u32 pid = thread();

	bpf_map_delete_elem(&working, &pid);
	return 0;
}

SEC("fentry/ext4_writepages")
int BPF_PROG(writepages, struct address_space *mapping)
{
	return works_at(BPF_CORE_READ(mapping, host));
}

SEC("fexit/ext4_writepages")
int BPF_PROG(writepages_end)
{
	return works_no_more();
}

SEC("fentry/ext4_convert_unwritten_extents")
int BPF_PROG(convert, struct jbd2_journal_handle *handle, struct inode *inode)
{
	return works_at(inode);
}

SEC("fexit/ext4_convert_unwritten_extents")
int BPF_PROG(convert_end)
{
	return works_no_more();
}

SEC("fentry/ext4_evict_inode")
int BPF_PROG(evict, struct inode *inode)
{
	return works_at(inode);
}

SEC("fexit/ext4_evict_inode")
int BPF_PROG(evict_end)
{
	return works_no_more();
}
