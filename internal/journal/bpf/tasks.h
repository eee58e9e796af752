/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The task that runs: whether it is a kernel thread, and in which cgroup it is.
 * Both estimators use these rules.
 *
 * Typed pointers are followed without a helper call, because helper calls are
 * the largest part of the cost of a handle's program. The current task has a
 * typed pointer since 5.11. For older kernels the same sources are compiled
 * with UNTYPED_TASK.
 */
#ifndef DAYBOOK_TASKS_H
#define DAYBOOK_TASKS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define ROOT_CGROUP 1 /* kernfs id of the root of each hierarchy */

#ifdef UNTYPED_TASK
#define FOLLOW(source, ...) BPF_CORE_READ(source, __VA_ARGS__)
#define current_task() ((struct task_struct *)bpf_get_current_task())
#else
#define FOLLOW_1(source, a) ((source)->a)
#define FOLLOW_2(source, a, b) ((source)->a->b)
#define FOLLOW_3(source, a, b, c) ((source)->a->b->c)
#define FOLLOW_N(_1, _2, _3, NAME, ...) NAME
#define FOLLOW(source, ...) FOLLOW_N(__VA_ARGS__, FOLLOW_3, FOLLOW_2, FOLLOW_1)(source, __VA_ARGS__)
#define current_task() bpf_get_current_task_btf()
#endif

static __always_inline bool is_kernel_thread(struct task_struct *task)
{
	return FOLLOW(task, flags) & PF_KTHREAD;
}

#ifndef UNTYPED_TASK
/*
 * Returns the state of a task in the io controller, NULL if there is none. Where the
 * controllers have the usual numbers, the verifier leaves one instruction of the test, in
 * place of five that compute the address.
 */
static __always_inline struct cgroup_subsys_state *io_state(struct task_struct *task)
{
	__u64 io = bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id);

	if (io == io_cgrp_id)
		return task->cgroups->subsys[io_cgrp_id];
	return task->cgroups->subsys[io];
}

/*
 * Returns a number that no other cgroup has or will have, and that takes fewer
 * instructions than the cgroup; 0: not known. A cgroup has another one when the io
 * controller is enabled again.
 */
static __always_inline __u64 serial_of(struct task_struct *task)
{
	return io_state(task)->serial_nr;
}
#endif

/*
 * Returns the cgroup to which the kernel charges the I/O of a task. On v1 that
 * is the blkio cgroup. On v2 css_set.subsys has the nearest ancestor with an
 * enabled io controller.
 */
static __always_inline __u64 cgroup_of(struct task_struct *task)
{
	struct cgroup_subsys_state *css = NULL;
	__u64 id;

#ifdef UNTYPED_TASK
	__u64 io = bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id);
	struct css_set *set = FOLLOW(task, cgroups);

	bpf_core_read(&css, sizeof(css), &set->subsys[io & 15]);
#else
	css = io_state(task);
#endif
	if (!css)
		return ROOT_CGROUP;
	id = FOLLOW(css, cgroup, kn, id);
	return id ? id : ROOT_CGROUP;
}

#endif
