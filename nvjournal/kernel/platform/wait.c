// SPDX-License-Identifier: GPL-2.0
/*
 * The engine's wait and wake, as a futex: on the kernel's hashed queues for
 * variables. Who waits is in the queue before he looks at the word; who wakes has
 * changed the word before he looks at the queue, with a barrier between.
 */
#include <linux/hrtimer.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/wait_bit.h>

#include "internal.h"

/* A timer may be late by this part of its time: it spares interrupts. */
#define SLACK_OF 8

void nvjk_wait(void *context, const u32 *word, u32 expected, u64 timeout_ns)
{
	/* Threads of ours wait for work: neither load nor a hung task. */
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
	smp_mb(); /* the word's change, before the look at the queue in there */
	wake_up_var((void *)word);
}

unsigned int nvjk_cpu(void *context)
{
	return raw_smp_processor_id();
}

u64 nvjk_now_ns(void *context)
{
	return ktime_get_ns();
}
