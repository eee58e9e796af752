/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The blocks of one partition on their way home: of each dirty block the newest
 * version that is committed, NVJ_QUEUE_DEPTH at once, by rising number, so that a
 * disk with an arm moves it one way. What is under way is marked so, and does not
 * change: a record of a later transaction freezes it, and there is no open handle
 * of an earlier one.
 */
#include "journal.h"

/* Sorted lists of 1, 2, 4... blocks at most: enough for 2^32. */
#define SORT_LISTS 33u

/*
 * A dirty list that a round has taken is the round's alone: dirty is set in each
 * of its blocks, so nobody puts one into a list again, nor makes it another's:
 * numbers and links do not change.
 */
static struct nvj_block *merge(struct nvj_block *a, struct nvj_block *b)
{
	struct nvj_block *first = NULL, **link = &first;

	while (a && b) {
		struct nvj_block **least = a->number < b->number ? &a : &b;

		*link = *least;
		link = &(*least)->dirty_next;
		*least = *link;
	}
	*link = a ? a : b;
	return first;
}

/* By merging, as that wants no memory. */
static struct nvj_block *by_number(struct nvj_block *list)
{
	struct nvj_block *sorted[SORT_LISTS] = {NULL}, *all = NULL;

	while (list) {
		struct nvj_block *b = list;
		unsigned n = 0;

		list = b->dirty_next;
		b->dirty_next = NULL;
		for (; n < SORT_LISTS - 1 && sorted[n]; n++) {
			b = merge(sorted[n], b);
			sorted[n] = NULL;
		}
		sorted[n] = merge(sorted[n], b);
	}
	for (unsigned n = 0; n < SORT_LISTS; n++)
		all = merge(sorted[n], all);
	return all;
}

/*
 * The newest version that is committed by now, if it still must go home. By now
 * and not by the round's target: meanwhile a commit may have superseded the
 * version that the target had, and it is gone. What is newer than the tail is as
 * good: replay puts the same lines there again.
 */
static struct nvj_image *choose(struct nvj *j, const struct nvj_block *b)
{
	uint64_t sealed = nvj_load_sc(&j->sealed);
	struct nvj_image *v = b->image;

	if (!v || !v->tid || v->tid > sealed)
		for (v = b->frozen; v && v->tid > sealed; v = v->next)
			;
	return v && v->tid > b->home_tid && !nvj_image_is_dead(j, v) ? v : NULL;
}

/* Under the block's lock, which is not in the list: it comes back if it is not all at home. */
static void settle(struct nvj *j, struct nvj_partition *p, struct nvj_block *b)
{
	nvj_frozen_trim(j, p, b);
	b->dirty = false;
	if (b->frozen || (b->image && b->image->tid > b->home_tid))
		nvj_block_dirty(j, p, b);
}

static void finish_one(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_write *write = j->platform.finish_write(j->platform.context, p->index);
	struct nvj_home_write *w = write->owner;
	struct nvj_block *b = w->block;

	nvj_lock(&b->lock, &j->platform);
	w->image->writing = false;
	if (!write->error) {
		if (w->image->tid > b->home_tid)
			b->home_tid = w->image->tid;
		nvj_count(&j->blocks_home, 1);
	}
	settle(j, p, b);
	nvj_block_unlock(j, b);
	if (write->error)
		nvj_abort_at(j, NVJ_EIO, write->block);
	nvj_ring_bell(&j->written, &j->platform);
	w->next = p->free_writes;
	p->free_writes = w;
}

/* Under the block's lock. NULL: there is nothing to write. */
static struct nvj_home_write *prepare(struct nvj *j, struct nvj_partition *p, struct nvj_block *b)
{
	struct nvj_image *image = choose(j, b);
	struct nvj_home_write *w = p->free_writes;

	if (!image)
		return NULL;
	p->free_writes = w->next;
	image->writing = true;
	w->block = b;
	w->image = image;
	w->write = (struct nvj_write){.block = b->number, .image = image->bytes, .owner = w};
	return w;
}

static void start_one(struct nvj *j, struct nvj_partition *p, struct nvj_home_write *w,
		      unsigned *under_way)
{
	if (!j->platform.start_write(j->platform.context, p->index, &w->write)) {
		++*under_way;
		return;
	}
	nvj_lock(&w->block->lock, &j->platform);
	w->image->writing = false;
	settle(j, p, w->block);
	nvj_block_unlock(j, w->block);
	w->next = p->free_writes;
	p->free_writes = w;
	nvj_abort_at(j, NVJ_EIO, w->write.block);
	nvj_ring_bell(&j->written, &j->platform);
}

void nvj_home_write_partition(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_block *b;
	unsigned under_way = 0;

	nvj_lock(&p->list_lock, &j->platform);
	b = p->dirty;
	p->dirty = NULL;
	nvj_unlock(&p->list_lock, &j->platform);

	b = by_number(b);
	while (b) {
		/* Read before it is settled: then it may be in the list again. */
		struct nvj_block *next;
		struct nvj_home_write *w = NULL;

		if (under_way == NVJ_QUEUE_DEPTH) {
			finish_one(j, p);
			under_way--;
		}
		nvj_lock(&b->lock, &j->platform);
		next = b->dirty_next;
		if (!nvj_load_sc(&j->aborted))
			w = prepare(j, p, b);
		if (!w)
			settle(j, p, b);
		nvj_block_unlock(j, b);
		if (w)
			start_one(j, p, w, &under_way);
		b = next;
	}
	while (under_way--)
		finish_one(j, p);
}
