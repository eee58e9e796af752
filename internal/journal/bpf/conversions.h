/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Conversions: ext4 converts the extents of an inode in a kernel thread when its data was
 * written. Each fsync of new data waits for one. What the thread works on is known from
 * its work, which is looked up only for a handle that changes something: few do.
 */
#ifndef DAYBOOK_CONVERSIONS_H
#define DAYBOOK_CONVERSIONS_H

#include "tasks.h"

/*
 * The kernel's functions that convert the extents of an inode whose data was written, in
 * a kernel thread: of buffered writes and of asynchronous direct ones. inode_of_work is
 * what to add to the address of a work of the first to get that of its inode. User space
 * sets them before it attaches the programs. 0: not known; then the start of each
 * conversion is observed.
 */
__u64 buffered_work;
__u64 direct_work;
__u64 inode_of_work;

/*
 * Returns the inode whose extents this task converts, or NULL: as an untyped pointer,
 * which is read with helper calls.
 */
static __always_inline struct inode *converted_inode(void)
{
	struct task_struct___worker *task = (void *)bpf_get_current_task();
	struct worker___queue *worker;
	struct iomap_dio *dio;
	__u64 work, does;
	void *thread;

	if (!bpf_core_field_exists(task->worker_private) ||
	    !bpf_core_field_exists(struct iomap_dio, aio.work))
		return NULL;
	if (!buffered_work || !(BPF_CORE_READ((struct task_struct *)task, flags) & PF_WQ_WORKER))
		return NULL;
	thread = BPF_CORE_READ(task, worker_private);
	worker = BPF_CORE_READ((struct kthread *)thread, data);
	does = (__u64)BPF_CORE_READ(worker, current_func);
	work = (__u64)BPF_CORE_READ(worker, current_work);
	if (!does || !work)
		return NULL;
	if (does == buffered_work)
		return (struct inode *)(work + inode_of_work);
	if (does != direct_work)
		return NULL;
	dio = (struct iomap_dio *)(work - bpf_core_field_offset(struct iomap_dio, aio.work));
	return BPF_CORE_READ(dio, iocb, ki_filp, f_inode);
}

#endif
