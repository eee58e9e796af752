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

#include "conversions.h"
#include "instances.h"
#include "pages.h"

#include <bpf/bpf_tracing.h>

static __always_inline void count_owner(void)
{
	__u32 first = 0;
	__u64 *n = bpf_map_lookup_elem(&owners_added, &first);

	if (n)
		*n += 1;
}

/*
 * Returns a number for an inode and the number of changes of `owners`. With its
 * owner (recent_check) it says what an entry of `recent_owners` is about. Two
 * processors that write one entry at the same time leave one that fits no inode. Two
 * numbers are the same by chance only.
 */
static __always_inline __u64 recent_number(struct inode_key *key, __u64 changes)
{
	__u64 sum = key->ino * 0x9e3779b97f4a7c15ULL + ((__u64)key->instance << 32 | key->dev);

	return (sum ^ sum >> 29) * 0xbf58476d1ce4e5b9ULL + changes;
}

static __always_inline __u64 recent_check(__u64 number, __u64 owner)
{
	return (number ^ number >> 32) + owner * 0x94d049bb133111ebULL;
}

static __always_inline struct recent_owner *recent_place(__u64 ino)
{
	__u32 at = (__u32)ino & (RECENT - 1);

	return bpf_map_lookup_elem(&recent_owners, &at);
}

static __always_inline void note_recent(struct recent_owner *recent, __u64 number, __u64 owner)
{
	if (!recent)
		return;
	recent->owner = owner;
	recent->check = recent_check(number, owner);
}

static __always_inline __u64 owner_of(__u64 ino, __u32 dev)
{
	struct inode_key key = {.ino = ino, .dev = dev, .instance = instance_of(dev)};
	__u64 number = recent_number(&key, owner_changes), *owner, found;
	struct recent_owner *recent = recent_place(ino);

	if (recent) {
		found = recent->owner;
		if (found && recent->check == recent_check(number, found))
			return found;
	}
	owner = bpf_map_lookup_elem(&owners, &key);
	if (!owner)
		return NO_OWNER;
	found = *owner;
	note_recent(recent, number, found);
	return found;
}

#ifndef UNTYPED_TASK
/*
 * Returns a number for a write by a task, and the number of changes of `owners`. It takes few
 * instructions: it has the superblock in place of the device and its instance, because
 * the end of a file system is such a change, and no superblock has the memory of another one
 * before. Two numbers are the same by chance only.
 */
static __always_inline __u64 write_number(struct task_struct *task, struct inode *inode,
					  __u64 changes)
{
	__u64 sum = (__u64)inode->i_ino * 0x9e3779b97f4a7c15ULL +
		    serial_of(task) * 0x94d049bb133111ebULL + as_unknown((__u64)inode->i_sb);

	return (sum ^ sum >> 29) * 0xbf58476d1ce4e5b9ULL + changes;
}
#endif

/*
 * The task in process context that changes the data of an inode becomes its
 * owner.
 */
static __always_inline int own_number(struct task_struct *task, __u64 ino, __u32 dev)
{
	struct inode_key key = {.ino = ino, .dev = dev, .instance = instance_at_work(dev)};
	__u64 cgroup = cgroup_of(task), number = recent_number(&key, owner_changes), *owner;
	struct recent_owner *recent = recent_place(ino);

	if (recent && recent->owner == cgroup && recent->check == recent_check(number, cgroup))
		return 0;
	owner = bpf_map_lookup_elem(&owners, &key);
	if (owner && *owner == cgroup) {
		note_recent(recent, number, cgroup);
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

/* A function so that most writes, which do not come here, have the registers. */
static __noinline int own_inode(struct inode *inode)
{
	struct task_struct *task = current_task();
	__u64 number = 0;

	if (is_kernel_thread(task))
		return 0;
#ifndef UNTYPED_TASK
	/* Of the changes before it looks at the owner. */
	number = write_number(task, inode, owner_changes);
#endif
	own_number(task, inode->i_ino, inode->i_sb->s_dev);
	recent_writes[inode->i_ino & (RECENT - 1)] = number;
	return 0;
}

static __always_inline int own(struct inode *inode)
{
	if (!inode)
		return 0;
#ifndef UNTYPED_TASK
	/* A kernel thread with the number of a process has nothing to do either. */
	if (recent_writes[inode->i_ino & (RECENT - 1)] ==
	    write_number(current_task(), inode, owner_changes))
		return 0;
#endif
	return own_inode(inode);
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

/*
 * Says that this task has the lock of an inode for itself, as a write has. On kernels
 * without the field nobody has it.
 */
static __always_inline bool is_locked_here(struct inode *inode)
{
#ifdef UNTYPED_TASK
	return false;
#else
	if (!bpf_core_field_exists(inode->i_rwsem.owner))
		return false;
	/* The lowest bits are flags (kernel/locking/rwsem.c); a reader has the first. */
	return ((__u64)inode->i_rwsem.owner.counter & ~6ULL) == (__u64)bpf_get_current_task();
#endif
}

/*
 * Stores through a memory map reserve their blocks here. So does a write, whose task
 * owns the inode since the write began, and has its lock.
 */
SEC("tp_btf/ext4_da_reserve_space")
int BPF_PROG(own_da_reserve_space, struct inode *inode)
{
	if (!inode || is_locked_here(inode))
		return 0;
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

enum phase { PHASE_WRITEBACK, PHASE_CONVERSION };

static __always_inline void set_inode(struct worker *worker, __u64 ino, __u32 dev, enum phase phase)
{
	if (phase == PHASE_WRITEBACK) {
		worker->writeback_ino = ino;
		worker->writeback_dev = dev;
		/* perhaps an inode that was evicted without a handle */
		worker->conversion_ino = 0;
	} else {
		worker->conversion_ino = ino;
		worker->conversion_dev = dev;
	}
}

/* Returns the owner for the next handle of a kernel thread, or NO_OWNER. */
static __always_inline __u64 take_owner(struct worker *worker)
{
	__u64 ino = worker->conversion_ino, owner = NO_OWNER;

	worker->conversion_ino = 0;
	if (ino)
		owner = owner_of(ino, worker->conversion_dev);
	ino = worker->writeback_ino;
	return owner == NO_OWNER && ino ? owner_of(ino, worker->writeback_dev) : owner;
}

/*
 * Returns the owner of the inode whose extents this kernel thread converts, or NO_OWNER.
 * The function is not static, so that the verifier checks it once.
 */
__noinline __u64 owner_of_conversion(void)
{
	struct inode *inode = converted_inode();

	if (!inode)
		return NO_OWNER;
	return owner_of(BPF_CORE_READ(inode, i_ino), BPF_CORE_READ(inode, i_sb, s_dev));
}

static __always_inline struct worker_place *worker_place(__u32 pid)
{
#ifdef UNTYPED_TASK
	return NULL;
#else
	return &worker_places[pid & ((1 << WORKER_PLACES_LOG2) - 1)];
#endif
}

static __always_inline void free_unused(struct worker_place *place)
{
	if (!place->worker.writeback_ino && !place->worker.conversion_ino)
		place->pid = 0;
}

/* Returns whom the kernel thread works for, or NO_OWNER. */
static __always_inline __u64 works_for(__u32 pid)
{
	struct worker_place *place = worker_place(pid);
	struct worker *worker;
	__u64 owner;

	if (place && place->pid == pid) {
		owner = take_owner(&place->worker);
		free_unused(place);
		return owner;
	}
	if (!any_worker)
		return NO_OWNER;
	worker = bpf_map_lookup_elem(&workers, &pid);
	return worker ? take_owner(worker) : NO_OWNER;
}

/*
 * A thread works on an inode, or on none any more (0). It has a place or an entry of
 * `workers`, and never both.
 */
static __always_inline int work_on(struct task_struct *task, __u64 ino, __u32 dev, enum phase phase)
{
	__u32 pid = FOLLOW(task, pid);
	struct worker fresh = {}, *worker = NULL;
	struct worker_place *place = worker_place(pid);

	if (place && place->pid == pid) {
		set_inode(&place->worker, ino, dev, phase);
		free_unused(place);
		return 0;
	}
	if (any_worker)
		worker = bpf_map_lookup_elem(&workers, &pid);
	if (!worker) {
		if (!ino)
			return 0;
#ifndef UNTYPED_TASK
		if (place && __sync_val_compare_and_swap(&place->pid, 0, pid) == 0) {
			set_inode(&place->worker, ino, dev, phase);
			return 0;
		}
#endif
		any_worker = 1;
		bpf_map_update_elem(&workers, &pid, &fresh, BPF_ANY);
		worker = bpf_map_lookup_elem(&workers, &pid);
		if (!worker)
			return 0;
	}
	set_inode(worker, ino, dev, phase);
	return 0;
}

static __always_inline int work_at(struct inode *inode, enum phase phase)
{
	struct task_struct *task = current_task();

	if (!is_kernel_thread(task))
		return 0;
	return inode ? work_on(task, inode->i_ino, inode->i_sb->s_dev, phase)
		     : work_on(task, 0, 0, phase);
}

/*
 * Writeback allocates the blocks of an inode. A kernel thread that syncs a file does
 * so, too: see commits.h. These events happen only there, and not in the syncs of
 * processes, which ext4_writepages would see.
 */
SEC("tp_btf/writeback_single_inode_start")
int BPF_PROG(work_writeback, struct inode *inode)
{
	if (!inode || inode->i_sb->s_magic != EXT4_SUPER_MAGIC)
		return 0;
	return work_at(inode, PHASE_WRITEBACK);
}

SEC("tp_btf/writeback_single_inode")
int BPF_PROG(work_writeback_end, struct inode *inode)
{
	if (!inode || inode->i_sb->s_magic != EXT4_SUPER_MAGIC)
		return 0;
	return work_at(NULL, PHASE_WRITEBACK);
}

/* Attached only if owner_of_conversion() does not know the functions of the kernel. */
SEC("tp_btf/ext4_ext_handle_unwritten_extents")
int BPF_PROG(work_conversion, struct inode *inode)
{
	return work_at(inode, PHASE_CONVERSION);
}

/* The eviction of an inode that has a name needs no handle. */
SEC("tp_btf/ext4_evict_inode")
int BPF_PROG(work_evict, struct inode *inode)
{
	if (!inode)
		return 0;
	if (inode->i_ino == EXT4_ROOT_INO)
		note_end(inode->i_sb->s_dev, (__u64)inode->i_sb);
	return inode->i_nlink ? 0 : work_at(inode, PHASE_CONVERSION);
}

#endif
