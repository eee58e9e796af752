/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Owners: the owner of a file is the cgroup that changed it last in process
 * context. Kernel threads that work on a file (writeback, extent conversion)
 * work for its owner.
 *
 * The pointers that a tracepoint passes are checked for NULL, here and in
 * commits.h, although they never are NULL. Since 6.12 the verifier requires the
 * check if jbd2 and ext4 are modules.
 */
#ifndef DAYBOOK_OWNERS_H
#define DAYBOOK_OWNERS_H

#include "instances.h"

#include <bpf/bpf_tracing.h>

static __always_inline __u64 owner_of(__u64 ino, __u32 dev)
{
	struct inode_key key = {.ino = ino, .dev = dev, .instance = instance_of(dev)};
	__u64 *owner;

	owner = bpf_map_lookup_elem(&owners, &key);
	return owner ? *owner : NO_OWNER;
}

static __always_inline void count_owner(void)
{
	__u32 first = 0;
	__u64 *n = bpf_map_lookup_elem(&owners_added, &first);

	if (n)
		*n += 1;
}

/*
 * Returns a number for an inode, its owner and the number of changes of `owners`, so
 * that one store notes them all. Two of them are the same by chance only.
 */
static __always_inline __u64 seen_owner(struct inode_key *key, __u64 cgroup, __u64 changes)
{
	__u64 sum = key->ino * 0x9e3779b97f4a7c15ULL + ((__u64)key->instance << 32 | key->dev);

	sum = (sum ^ sum >> 29) * 0xbf58476d1ce4e5b9ULL + cgroup;
	return (sum ^ sum >> 32) * 0x94d049bb133111ebULL + changes;
}

/*
 * The task in process context that changes the data of an inode becomes its
 * owner.
 */
static __always_inline int own_number(struct task_struct *task, __u64 ino, __u32 dev)
{
	struct inode_key key = {.ino = ino, .dev = dev, .instance = instance_at_work(dev)};
	__u64 cgroup = cgroup_of(task), *owner, *recent;
	__u64 now = seen_owner(&key, cgroup, owner_changes);
	__u32 at = (__u32)ino & (RECENT - 1);

	recent = bpf_map_lookup_elem(&recent_owners, &at);
	if (recent && *recent == now)
		return 0;
	owner = bpf_map_lookup_elem(&owners, &key);
	if (owner && *owner == cgroup) {
		if (recent)
			*recent = now;
		return 0;
	}
	__sync_fetch_and_add(&owner_changes, 1);
	if (!owner && bpf_map_update_elem(&owners, &key, &cgroup, BPF_NOEXIST) == 0)
		count_owner();
	else
		bpf_map_update_elem(&owners, &key, &cgroup, BPF_ANY);
	__sync_fetch_and_add(&owner_changes, 1);
	return 0;
}

static __always_inline int own(struct inode *inode)
{
	struct task_struct *task = current_task();

	if (!inode || is_kernel_thread(task))
		return 0;
	return own_number(task, inode->i_ino, inode->i_sb->s_dev);
}

SEC("tp_btf/ext4_da_write_begin")
int BPF_PROG(own_da_write_begin, struct inode *inode)
{
	return own(inode);
}

SEC("tp_btf/ext4_write_begin")
int BPF_PROG(own_write_begin, struct inode *inode)
{
	return own(inode);
}

/* Stores through a memory map reserve their blocks here. */
SEC("tp_btf/ext4_da_reserve_space")
int BPF_PROG(own_da_reserve_space, struct inode *inode)
{
	return own(inode);
}

SEC("tp_btf/ext4_truncate_enter")
int BPF_PROG(own_truncate, struct inode *inode)
{
	return own(inode);
}

SEC("tp_btf/ext4_fallocate_enter")
int BPF_PROG(own_fallocate, struct inode *inode)
{
	return own(inode);
}

/*
 * Asynchronous direct writes end in a kernel thread, which converts the
 * extents. Other file systems use this tracepoint, too.
 */
SEC("tp_btf/iomap_dio_rw_begin")
int BPF_PROG(own_direct, struct kiocb *iocb, struct iov_iter *memory)
{
	struct inode *inode;

	if (!iocb || !memory)
		return 0;
	if (bpf_core_field_exists(memory->data_source) && !memory->data_source)
		return 0; /* a read does not change the owner */
	inode = iocb->ki_filp->f_inode;
	if (!inode || inode->i_sb->s_magic != EXT4_SUPER_MAGIC)
		return 0;
	return own(inode);
}

enum phase { PHASE_WRITEPAGES, PHASE_CONVERSION };

static __always_inline int work_for(struct task_struct *task, __u64 owner, enum phase phase)
{
	struct worker fresh = {}, *worker;
	__u32 pid = FOLLOW(task, pid);

	worker = bpf_map_lookup_elem(&workers, &pid);
	if (!worker) {
		if (owner == NO_OWNER)
			return 0;
		bpf_map_update_elem(&workers, &pid, &fresh, BPF_ANY);
		worker = bpf_map_lookup_elem(&workers, &pid);
		if (!worker)
			return 0;
	}
	if (phase == PHASE_WRITEPAGES) {
		worker->writepages_owner = owner;
		/* perhaps of an inode that was evicted without a handle */
		worker->conversion_owner = NO_OWNER;
	} else {
		worker->conversion_owner = owner;
	}
	return 0;
}

static __always_inline int work_at(struct inode *inode, enum phase phase)
{
	struct task_struct *task = current_task();

	if (!is_kernel_thread(task))
		return 0;
	return work_for(task, inode ? owner_of(inode->i_ino, inode->i_sb->s_dev) : NO_OWNER, phase);
}

SEC("tp_btf/ext4_writepages")
int BPF_PROG(work_writepages, struct inode *inode)
{
	return work_at(inode, PHASE_WRITEPAGES);
}

SEC("tp_btf/ext4_writepages_result")
int BPF_PROG(work_writepages_result)
{
	return work_at(NULL, PHASE_WRITEPAGES);
}

SEC("tp_btf/ext4_ext_handle_unwritten_extents")
int BPF_PROG(work_conversion, struct inode *inode)
{
	return work_at(inode, PHASE_CONVERSION);
}

SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(work_evict, struct inode *inode)
{
	if (inode && inode->i_ino == EXT4_ROOT_INO)
		note_end(inode->i_sb->s_dev, (__u64)inode->i_sb);
	return work_at(inode, PHASE_CONVERSION);
}

#endif
