/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A transaction of jfsnvj finds whose lock a page has without jfsTxnLock, also if the other
 * transaction ends meanwhile and its lock becomes something else, and does not wait for one
 * that has released the page. This compiles the file of the kernel that does it,
 * kernel/jfs/locks.c. What the other thread does happens before any of the steps there: all
 * orders are tried.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lib/expect.h"

/* --- As in JFS's headers; a lock has these places for its numbers ----------------- */

typedef uint16_t lid_t;
typedef uint16_t tid_t;

struct tlock {
	lid_t next;
	tid_t tid;
	char rest[60];
};

struct metapage {
	lid_t lid;
	bool held;
};

struct inode {
	int *i_sb;
};

struct wait_queue_head {
	bool entered, woken;
};

struct tblock {
	struct wait_queue_head waitor;
	const struct inode *nvj_inode;
};

static struct tlock locks[4];
static struct tblock transactions[16];
static void before_step(void);

#define lid_to_tlock(number) (&locks[number])
#define tid_to_tblock(number) (&transactions[number])
#define READ_ONCE(x) (before_step(), *(const volatile __typeof__(x) *)&(x))
#define smp_load_acquire(at) READ_ONCE(*(at))
#define smp_store_release(at, to) (*(at) = (to))
#define smp_rmb() __asm__ volatile("" ::: "memory")
#define smp_mb() __asm__ volatile("" ::: "memory")
#define rcu_read_lock()
#define rcu_read_unlock()

/* --- As in the kernel: a thread sleeps until it is woken, also if it was woken before -- */

enum { TASK_UNINTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT, NOBODY };

static unsigned int waits;
static bool sleeps_for_ever;
static void rest_of_steps(void);

#define DEFINE_WAIT_FUNC(name, function) int name = 0

static void add_wait_queue(struct wait_queue_head *queue, const int *wait)
{
	before_step();
	queue->entered = true;
	(void)wait;
}

static void remove_wait_queue(struct wait_queue_head *queue, const int *wait)
{
	queue->entered = false;
	(void)wait;
}

static void wait_woken(const int *wait, int state, int timeout)
{
	(void)wait, (void)state, (void)timeout;
	waits++;
	rest_of_steps();
	for (unsigned int n = 0; n < 16; n++)
		if (transactions[n].waitor.entered)
			sleeps_for_ever = !transactions[n].waitor.woken;
}

static void release_metapage(struct metapage *mp)
{
	before_step();
	mp->held = false;
}

static void jfsnvj_page_wait(const int *sb, const struct inode *holder)
{
	(void)sb, (void)holder;
}

static void jfsnvj_page_waited(const int *sb)
{
	(void)sb;
}

#define JFSNVJ_JOURNAL_H
#include "../kernel/jfs/locks.c"

/* --- The other thread ------------------------------------------------------------- */

enum { LOCK = 2, OTHER = 7, STEPS = 5, POINTS = 5 };

static struct metapage page;
static struct inode inode;
static unsigned int linelock_index;
static unsigned int done, point;
/* So many of its steps are done before each point of this thread. */
static unsigned int steps_before[POINTS];

/*
 * The transaction releases the page, and wakes who waits. Then it ends. Its lock gets free,
 * and then is a linelock, of 28 places.
 */
static void step(unsigned int number)
{
	struct wait_queue_head *queue = &transactions[OTHER].waitor;

	switch (number) {
	case 0:
		page.lid = 0;
		break;
	case 1:
		if (queue->entered)
			queue->woken = true;
		break;
	case 2:
		jfsnvj_clear_tlock(LOCK);
		break;
	case 3: {
		const uint8_t counts[2] = {28, (uint8_t)linelock_index};

		memcpy(&locks[LOCK].tid, counts, sizeof(counts));
		break;
	}
	}
}

static void before_step(void)
{
	if (point < POINTS)
		while (done < steps_before[point])
			step(done++);
	point++;
}

static void rest_of_steps(void)
{
	while (done < STEPS - 1)
		step(done++);
}

static void reset(tid_t tid)
{
	memset(transactions, 0, sizeof(transactions));
	page = (struct metapage){.lid = LOCK, .held = true};
	locks[LOCK].tid = tid;
	done = point = waits = 0;
	sleeps_for_ever = false;
	memset(steps_before, 0, sizeof(steps_before));
}

/* --- Tests ------------------------------------------------------------------------ */

static void finds_whose_it_is(void)
{
	tid_t owner = NOBODY;

	reset(OTHER);
	expect(jfsnvj_lock_of(&page.lid, &owner) == LOCK && owner == OTHER);
	/* A lock without a transaction. */
	reset(0);
	expect(jfsnvj_lock_of(&page.lid, &owner) == LOCK && owner == 0);
	reset(OTHER);
	page.lid = 0;
	expect(jfsnvj_lock_of(&page.lid, &owner) == 0);
}

/* Calls test for each number of steps before each point. */
static void in_all_orders(void (*test)(void))
{
	unsigned int orders = 1;

	for (unsigned int n = 0; n < POINTS; n++)
		orders *= STEPS;
	for (unsigned int order = 0; order < orders; order++) {
		unsigned int rest = order;

		reset(OTHER);
		for (unsigned int n = 0; n < POINTS; n++, rest /= STEPS)
			steps_before[n] = rest % STEPS;
		test();
	}
}

static void finds_none_that_becomes_another(void)
{
	tid_t owner = OTHER;
	lid_t found = jfsnvj_lock_of(&page.lid, &owner);

	expect(found == 0 || (found == LOCK && owner == OTHER));
}

static void waits_until_it_is_released(void)
{
	jfsnvj_wait_for_page(&inode, &page, LOCK, OTHER);
	expect(!page.held && !sleeps_for_ever);
	expect(!transactions[OTHER].waitor.entered);
	/* Who was not there before waited. */
	expect(waits == 1 || done > 0);
}

int main(void)
{
	finds_whose_it_is();
	for (linelock_index = 0; linelock_index <= 28; linelock_index++)
		in_all_orders(finds_none_that_becomes_another);
	in_all_orders(waits_until_it_is_released);
	return 0;
}
