// SPDX-License-Identifier: GPL-2.0
/*
 * How many buffers the journals of all mounts together may pin. Above this
 * bound each journal is asked for a checkpoint, also the idle ones, because
 * they may have pinned most.
 *
 * The count can be wrong by some tens for each processor. An exact count would
 * move a cache line between processors for each buffer.
 */
#include <linux/module.h>
#include <linux/percpu_counter.h>

#include "journal.h"

static unsigned long max_pinned_buffers;
module_param(max_pinned_buffers, ulong, 0644);
MODULE_PARM_DESC(max_pinned_buffers,
		 "blocks of all mounts that may wait for a checkpoint; 0: an eighth of memory");

/* At most so often are the journals asked, in jiffies. */
#define ASK_EVERY (HZ / 10)

static struct percpu_counter pinned;
static DEFINE_SPINLOCK(journals_lock);
static LIST_HEAD(journals);
static unsigned long asked_at; /* jiffies; under journals_lock */

int __init nvjk_bound_init(void)
{
	asked_at = jiffies - ASK_EVERY;
	return percpu_counter_init(&pinned, 0, GFP_KERNEL);
}

void nvjk_bound_exit(void)
{
	percpu_counter_destroy(&pinned);
}

void nvjk_bound_join(struct nvjk_journal *j)
{
	spin_lock(&journals_lock);
	list_add_tail(&j->bound, &journals);
	spin_unlock(&journals_lock);
}

void nvjk_bound_leave(struct nvjk_journal *j)
{
	spin_lock(&journals_lock);
	list_del(&j->bound);
	spin_unlock(&journals_lock);
}

u64 nvjk_bound(void)
{
	unsigned long most = READ_ONCE(max_pinned_buffers);

	return most ? most : totalram_pages() / 8;
}

u64 nvjk_bound_count(void)
{
	return percpu_counter_sum_positive(&pinned);
}

void nvjk_bound_add(long buffers)
{
	percpu_counter_add(&pinned, buffers);
}

void nvjk_bound_check(void)
{
	struct nvjk_journal *j;

	if (likely(percpu_counter_read_positive(&pinned) <= nvjk_bound()))
		return;
	if (!spin_trylock(&journals_lock))
		return; /* another thread asks */
	if (time_after_eq(jiffies, asked_at + ASK_EVERY)) {
		asked_at = jiffies;
		list_for_each_entry(j, &journals, bound) nvjk_thread_checkpoint(j);
	}
	spin_unlock(&journals_lock);
}
