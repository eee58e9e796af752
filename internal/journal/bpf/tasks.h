/* SPDX-License-Identifier: GPL-2.0 */
/* Who a task is: the same rule for every estimator. Include after bpf_core_read.h. */
#ifndef DAYBOOK_TASKS_H
#define DAYBOOK_TASKS_H

#define ROOT_CGROUP 1 /* kernfs id of every hierarchy's root */

/* bpf_get_current_task_btf came with 5.11; before, the same pointer untyped. */
static __always_inline struct task_struct *current_task(void)
{
	return (struct task_struct *)bpf_get_current_task();
}

static __always_inline bool is_kernel_thread(struct task_struct *task)
{
	return BPF_CORE_READ(task, flags) & PF_KTHREAD;
}

/*
 * The cgroup that carries the task's I/O: on v1 the blkio cgroup; on v2
 * css_set.subsys names the nearest ancestor with the io controller on.
 */
static __always_inline __u64 cgroup_of(struct task_struct *task)
{
	__u32 io = bpf_core_enum_value(enum cgroup_subsys_id, io_cgrp_id);
	struct css_set *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *css = NULL;
	__u64 id;

	bpf_core_read(&css, sizeof(css), &set->subsys[io & 15]);
	if (!css)
		return ROOT_CGROUP;
	id = BPF_CORE_READ(css, cgroup, kn, id);
	return id ? id : ROOT_CGROUP;
}

#endif
