/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Changes that are logged when their transaction closes. So a block that many
 * handles of a transaction change is compared, copied and written once. Until
 * then the change is only in the caller's memory, and the entry of the block
 * has its address: it is pending.
 *
 * Who writes the record of a pending block, with the number of its transaction
 * T, is the first of:
 *
 * 	the leader of T's commit, when no handle of T is open, and before it reads
 * 	the heads that all records of T must be before;
 * 	a handle of a later transaction that accesses or revokes the block, before
 * 	it may change the memory. So no change of that handle is in the record.
 *
 * Both do so under the lock of the block. The leader takes the lock of each
 * block that was pending in T, also if it is not any more. So it waits for
 * those that are about to write a record of T. Such a handle fences and flags
 * the record before it unlocks.
 *
 * If a later transaction has accessed the block already, the change is logged
 * at once, and both commit together, as without this file. So a block is
 * pending in one transaction at most, the newest one that has accessed it.
 *
 * The credits of a handle are free when it has stopped. So pending blocks have
 * credits of their own, later_most, which handles cannot have. Each takes those
 * of a whole block; the handle must have had that many left. So the lines that
 * may follow after TIGHT was raised are not more than without this file: see
 * room.c.
 */
#include "journal.h"

int nvj_allow_later(struct nvj *j, uint32_t lines)
{
	if (j->later_most || lines > j->credits / 2)
		return NVJ_EINVAL;
	j->later_most = lines;
	j->credits -= lines;
	return 0;
}

bool nvj_much_waits(const struct nvj *j)
{
	return nvj_load(&j->later_lines) > (uint64_t)j->later_most * 3 / 4;
}

static bool take_credits(struct nvj_handle *h)
{
	struct nvj *j = h->journal;

	if (h->credits < NVJ_BLOCK_CREDITS)
		return false;
	if (nvj_add_sc(&j->later_lines, NVJ_BLOCK_CREDITS) + NVJ_BLOCK_CREDITS > j->later_most) {
		nvj_sub_sc(&j->later_lines, NVJ_BLOCK_CREDITS);
		return false;
	}
	h->credits -= NVJ_BLOCK_CREDITS;
	h->later += NVJ_BLOCK_CREDITS;
	return true;
}

/* The caller holds the block's lock. */
static void forget(struct nvj *j, struct nvj_block *b)
{
	b->later = NULL;
	nvj_sub_sc(&j->later_lines, NVJ_BLOCK_CREDITS);
}

void nvj_later_drop(struct nvj *j, struct nvj_block *b)
{
	if (b->later)
		forget(j, b);
}

/*
 * True: the block is pending in the handle's transaction. The caller holds its
 * lock.
 */
static bool make_pending(struct nvj_handle *h, struct nvj_block *b, const void *image)
{
	struct nvj *j = h->journal;
	struct nvj_cpu *c = &j->cpu[h->cpu];
	unsigned slot = h->tid & (NVJ_SLOTS - 1);

	if (!b->image || nvj_load(&b->newest_tid) != h->tid)
		return false;
	if (b->later) {
		b->later = image;
		return true;
	}
	if (!take_credits(h))
		return false;
	/*
	 * Before the handle ends, so that the thread that closes the
	 * transaction knows that it is not empty.
	 */
	if (NVJ_UNLIKELY(nvj_load(&c->dirty[slot]) != h->tid))
		nvj_store_release(&c->dirty[slot], h->tid);
	b->later = image;
	b->later_tid = h->tid;
	nvj_block_list(j, b, NVJ_LIST_LATER, h->tid);
	return true;
}

int nvj_log_later(struct nvj_handle *h, uint64_t block, const void *image)
{
	struct nvj *j = h->journal;
	struct nvj_block *b;
	int lines = (int)NVJ_BLOCK_CREDITS;

	if (NVJ_UNLIKELY(nvj_load(&j->aborted)))
		return NVJ_EROFS;
	b = nvj_block_lock_accessed(h, block);
	if (NVJ_UNLIKELY(!b))
		return NVJ_EINVAL;
	if (!make_pending(h, b, image))
		lines = nvj_block_log(h, b, image, NVJ_COMPARE, NVJ_UPDATE);
	nvj_block_unlock(j, b);
	nvj_handle_placed(h);
	return lines;
}

/*
 * Logs the pending change by a handle that may be of another transaction. The
 * caller holds the block's lock. The block has credits of its own.
 */
static int write_pending(struct nvj_handle *h, struct nvj_block *b)
{
	struct nvj *j = h->journal;
	uint64_t tid = h->tid;
	uint32_t credits = h->credits;
	int lines;

	h->tid = b->later_tid;
	/* More than it takes: then other records may follow. */
	h->credits = 2 * NVJ_BLOCK_CREDITS;
	lines = nvj_block_log(h, b, b->later, NVJ_COMPARE, NVJ_UPDATE);
	h->tid = tid;
	h->credits = credits;
	if (lines < 0)
		nvj_abort_at(j, lines, nvj_load(&b->number));
	else if (j->platform.logged_later)
		j->platform.logged_later(j->platform.context, b->later_tid, nvj_load(&b->number),
					 (uint32_t)lines);
	return lines < 0 ? lines : 0;
}

int nvj_later_write(struct nvj_handle *h, struct nvj_block *b)
{
	int error;

	if (NVJ_LIKELY(!b->later || b->later_tid >= h->tid))
		return 0;
	error = write_pending(h, b);
	/*
	 * The leader of that transaction may wait for this lock, and then reads
	 * the heads.
	 */
	if (!error && h->kept_lines)
		error = nvj_handle_write(h);
	if (h->placed)
		nvj_handle_set_flags(h);
	forget(h->journal, b);
	return error;
}

static void write_list(struct nvj_handle *h, struct nvj_block *b, uint64_t tid)
{
	struct nvj *j = h->journal;

	while (b) {
		struct nvj_block *next;

		nvj_lock(&b->lock, &j->platform);
		next = nvj_listed_next(b, NVJ_LIST_LATER, tid);
		if (b->later && b->later_tid == tid) {
			if (!nvj_load(&j->aborted))
				(void)write_pending(h, b);
			forget(j, b);
		}
		nvj_block_unlock(j, b);
		b = next;
	}
}

void nvj_later_write_all(struct nvj *j, uint64_t first, uint64_t last)
{
	struct nvj_handle *h = &j->leader;

	if (!j->later_most)
		return;
	h->journal = j;
	h->cpu = j->platform.cpu(j->platform.context) % NVJ_CPUS;
	h->tid = last;
	h->placed = h->kept_lines = 0;
	for (uint64_t tid = first; tid <= last; tid++)
		for (unsigned i = 0; i < j->partitions; i++)
			write_list(h, nvj_listed_take(j, &j->partition[i], NVJ_LIST_LATER, tid),
				   tid);
	if (h->kept_lines)
		(void)nvj_handle_write(h);
	if (h->placed)
		nvj_handle_set_flags(h);
}
