// SPDX-License-Identifier: GPL-2.0
/*
 * Buffers whose content is not all at home. The engine itself writes logged
 * blocks home. Until then the page cache must not drop the buffer, because it
 * would then read older content. So each such buffer has a struct nvjk_buffer,
 * which holds a reference until the journal's tail is at the newest transaction
 * that accessed it. That transaction is committed only after its handles have
 * ended. So a thread that has accessed a buffer in an open handle may use its
 * nvjk_buffer without a lock.
 *
 * The bit lock of a buffer protects its BH_JBD, b_private and newest_tid. The lists,
 * by block number, are for the sweep. A nvjk_buffer remains readable until the readers
 * of RCU have ended (was_accessed in buffer.c). Its cache is not SLAB_TYPESAFE_BY_RCU:
 * a thread of the kernel destroys such a cache later (Linux 6.1, mm/slab_common.c), and
 * until then a module that makes one of that name cannot be loaded.
 */
#include <linux/spinlock.h>
#include <linux/bit_spinlock.h>

#include "journal.h"

/* How many buffers the sweep examines under the lock of a list. */
#define BATCH 64u

struct kmem_cache *nvjk_buffer_cache;

void nvjk_pins_init(struct nvjk_journal *j)
{
	unsigned int i;

	for (i = 0; i < NVJK_PIN_LISTS; i++) {
		spin_lock_init(&j->pins[i].lock);
		INIT_LIST_HEAD(&j->pins[i].list);
	}
}

static void lock_state(struct buffer_head *bh) __acquires(bitlock)
{
	bit_spin_lock(BH_JournalHead, &bh->b_state);
}

static void unlock_state(struct buffer_head *bh) __releases(bitlock)
{
	bit_spin_unlock(BH_JournalHead, &bh->b_state);
}

/* The caller holds the bit lock. NULL: there is none yet. */
static struct nvjk_buffer *raise(struct buffer_head *bh, u64 tid)
{
	struct nvjk_buffer *b = nvjk_buffer_of(bh);

	if (b && nvj_known_begins(&b->known, tid))
		smp_mb(); /* see core/known.h */
	return b;
}

static struct nvjk_buffer *make(struct buffer_head *bh, u64 tid)
{
	struct nvjk_buffer *b = kmem_cache_zalloc(nvjk_buffer_cache, GFP_NOFS | __GFP_NOFAIL);

	b->head.b_bh = bh;
	b->data = nvjk_is_data(bh);
	(void)nvj_known_begins(&b->known, tid);
	mutex_init(&b->lock);
	INIT_LIST_HEAD(&b->pin);
	return b;
}

struct nvjk_buffer *nvjk_pin(struct nvjk_journal *j, struct buffer_head *bh, u64 tid)
{
	struct nvjk_pins *pins = &j->pins[bh->b_blocknr % NVJK_PIN_LISTS];
	struct nvjk_buffer *b, *fresh;

	lock_state(bh);
	b = raise(bh, tid);
	unlock_state(bh);
	if (b)
		return b;

	fresh = make(bh, tid);
	lock_state(bh);
	b = raise(bh, tid);
	if (!b) {
		get_bh(bh);
		/* A thread that finds it without the lock sees its content. */
		smp_store_release(&bh->b_private, &fresh->head);
		set_buffer_jbd(bh);
	}
	unlock_state(bh);
	if (b) {
		kmem_cache_free(nvjk_buffer_cache, fresh);
		return b;
	}
	spin_lock(&pins->lock);
	list_add_tail(&fresh->pin, &pins->list);
	pins->count++;
	spin_unlock(&pins->lock);
	nvjk_bound_add(1);
	nvjk_bound_check();
	return fresh;
}

/* Not a number of a transaction: the buffer stays, whatever is at home. */
#define HELD (~(u64)0)

struct nvjk_buffer *nvjk_hold(struct buffer_head *bh)
{
	struct nvjk_buffer *b;

	lock_state(bh);
	b = raise(bh, HELD);
	unlock_state(bh);
	return b;
}

/*
 * A thread that has accessed it meanwhile has a handle of the newest
 * transaction at most.
 */
void nvjk_let_go(struct nvjk_journal *j, struct nvjk_buffer *b)
{
	lock_state(b->head.b_bh);
	WRITE_ONCE(b->known.newest_tid, READ_ONCE(j->newest));
	unlock_state(b->head.b_bh);
}

/* True: no other thread can find it any more. */
static bool detach(struct nvjk_buffer *b, u64 tail, bool all)
{
	struct buffer_head *bh = b->head.b_bh;
	bool gone;

	lock_state(bh);
	gone = all || b->known.newest_tid <= tail;
	if (gone) {
		clear_buffer_jbd(bh);
		WRITE_ONCE(bh->b_private, NULL);
	}
	unlock_state(bh);
	return gone;
}

static void free_buffer(struct rcu_head *rcu)
{
	kmem_cache_free(nvjk_buffer_cache, container_of(rcu, struct nvjk_buffer, rcu));
}

static void let_go(struct nvjk_buffer *b)
{
	/* Readers without a lock do not take it for one in use: was_accessed. */
	nvj_known_forget(&b->known);
	if (unlikely(b->data))
		nvjk_data_put(b->head.b_bh);
	else
		put_bh(b->head.b_bh);
	call_rcu(&b->rcu, free_buffer);
}

void nvjk_unpin(struct nvjk_journal *j, struct buffer_head *bh)
{
	struct nvjk_pins *pins = &j->pins[bh->b_blocknr % NVJK_PIN_LISTS];
	struct nvjk_buffer *b;

	/*
	 * Buffers are detached only under this lock. So a buffer that was found
	 * is in the list.
	 */
	spin_lock(&pins->lock);
	b = buffer_jbd(bh) ? nvjk_buffer_of(bh) : NULL;
	if (b) {
		(void)detach(b, 0, true);
		list_del(&b->pin);
		pins->count--;
	}
	spin_unlock(&pins->lock);
	if (b) {
		nvjk_bound_add(-1);
		let_go(b);
	}
}

/*
 * Examines at most BATCH buffers at the head of the list. Those that stay are
 * moved to its end.
 */
static unsigned int sweep_some(struct nvjk_pins *pins, u64 tail, bool all, unsigned long left)
{
	struct nvjk_buffer *b, *next;
	unsigned int looked = 0;
	long released = 0;
	LIST_HEAD(gone);

	spin_lock(&pins->lock);
	while (!list_empty(&pins->list) && looked < BATCH && looked < left) {
		b = list_first_entry(&pins->list, struct nvjk_buffer, pin);
		looked++;
		if (detach(b, tail, all)) {
			list_move_tail(&b->pin, &gone);
			pins->count--;
			released++;
		} else {
			list_move_tail(&b->pin, &pins->list);
		}
	}
	spin_unlock(&pins->lock);
	if (released)
		nvjk_bound_add(-released);
	list_for_each_entry_safe(b, next, &gone, pin) let_go(b);
	return looked;
}

void nvjk_pins_sweep(struct nvjk_journal *j, bool all)
{
	u64 tail = all ? 0 : nvj_tail(j->nvj);
	unsigned int i;

	for (i = 0; i < NVJK_PIN_LISTS; i++) {
		unsigned long left = READ_ONCE(j->pins[i].count);

		while (left) {
			unsigned int looked = sweep_some(&j->pins[i], tail, all, left);

			left = looked ? left - looked : 0;
			cond_resched();
		}
	}
}

u64 nvjk_pins_count(struct nvjk_journal *j)
{
	u64 count = 0;
	unsigned int i;

	for (i = 0; i < NVJK_PIN_LISTS; i++)
		count += READ_ONCE(j->pins[i].count);
	return count;
}
