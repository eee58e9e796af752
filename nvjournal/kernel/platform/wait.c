// SPDX-License-Identifier: GPL-2.0
/*
 * The engine's wait and wake, similar to a futex, with the kernel's hashed wait
 * queues for variables. A waiting thread enters the queue before it checks the
 * word. A waking thread changes the word before it checks the queue, with a
 * barrier between.
 */
#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/sched/stat.h>
#include <linux/timekeeping.h>
#include <linux/wait_bit.h>

#include "internal.h"

/* The timer may be late by this fraction of its time, to avoid interrupts. */
#define SLACK_OF 8

void nvjk_wait(void *context, const u32 *word, u32 expected, u64 timeout_ns)
{
	/* Our threads wait for work: this is neither load nor a hung task. */
	unsigned int state = current->flags & PF_KTHREAD ? TASK_IDLE : TASK_UNINTERRUPTIBLE;
	struct wait_queue_head *queue = __var_waitqueue((void *)word);
	struct wait_bit_queue_entry entry;
	ktime_t timeout = ns_to_ktime(timeout_ns);

	init_wait_var_entry(&entry, (void *)word, 0);
	prepare_to_wait_event(queue, &entry.wq_entry, state);
	if (READ_ONCE(*word) == expected) {
		if (timeout_ns)
			schedule_hrtimeout_range(&timeout, timeout_ns / SLACK_OF, HRTIMER_MODE_REL);
		else
			schedule();
	}
	finish_wait(queue, &entry.wq_entry);
}

void nvjk_wake(void *context, const u32 *word)
{
	smp_mb(); /* the word changes before wake_up_var checks the queue */
	wake_up_var((void *)word);
}

/*
 * In a guest, the thread that is awaited may have no processor of the host. So what
 * waits without sleeping does so for a short time only.
 */
bool nvjk_alone(void *context)
{
	return !need_resched() && single_task_running();
}

unsigned int nvjk_cpu(void *context)
{
	return raw_smp_processor_id();
}

u64 nvjk_now_ns(void *context)
{
	return ktime_get_ns();
}
