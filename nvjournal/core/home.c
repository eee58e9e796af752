/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Writes the blocks of one partition to their homes: of each dirty block the
 * newest committed version. It writes NVJ_QUEUE_DEPTH blocks at the same time,
 * by rising number, so that the arm of a hard disk moves in one direction. What
 * is written is a copy in the queue's memory, because the image may change
 * meanwhile. The copy is made under the block's lock.
 *
 * It also writes single blocks for a caller that will write the block itself
 * (nvj_bring_home). Only one version of a block is written at a time, because
 * two could reach the disk in any order. A thread that waits for the write of
 * another thread has no writes of its own in progress, or it belongs to a
 * round, for which the other thread does not wait.
 */
#include "journal.h"

/* Sorted lists of at most 1, 2, 4... blocks: enough for 2^32. */
#define SORT_LISTS 33u

/*
 * A dirty list that a round has taken belongs to the round alone: dirty is set
 * in each of its blocks. So no thread puts a block into a list again, or reuses
 * it for another block. Numbers and links do not change.
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

/* A merge sort, because it needs no memory. */
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
 * Returns the newest version that is committed now, if it still must be written
 * home. A version that was committed at the round's target may be gone, because
 * a later commit may have replaced it. A version newer than the tail is as
 * good: replay writes the same lines again.
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

/*
 * The content of a version: the image, with the lines of each frozen version
 * from the newest one to this one.
 */
static void copy_version(const struct nvj_block *b, const struct nvj_image *v, uint8_t *to)
{
	if (b->image)
		__builtin_memcpy(to, b->image->bytes, NVJ_BLOCK_BYTES);
	if (v == b->image)
		return;
	for (const struct nvj_image *newer = b->frozen;; newer = newer->next) {
		uint64_t left = newer->lines;

		while (left) {
			unsigned count, first = nvj_take_run(&left, &count);
			size_t at = first * NVJ_LINE_BYTES;

			__builtin_memcpy(to + at, newer->bytes + at, count * NVJ_LINE_BYTES);
		}
		if (newer == v)
			return;
	}
}

int nvj_home_queue_init(struct nvj *j, struct nvj_home_queue *q, unsigned number,
			struct nvj_partition *round)
{
	bool all = true;

	q->number = number;
	q->under_way = 0;
	q->round = round;
	q->free_writes = NULL;
	for (unsigned i = 0; i < NVJ_QUEUE_DEPTH; i++) {
		q->writes[i].next = q->free_writes;
		q->free_writes = &q->writes[i];
		/*
		 * A block of its own for each, as for an image. All at the
		 * start, because a checkpoint must not wait for memory.
		 */
		q->writes[i].bytes = nvj_allocate_block(j);
		all = all && q->writes[i].bytes;
	}
	return all ? 0 : NVJ_ENOMEM;
}

void nvj_home_queue_free(struct nvj *j, struct nvj_home_queue *q)
{
	for (unsigned i = 0; i < NVJ_QUEUE_DEPTH; i++)
		if (q->writes[i].bytes)
			j->platform.release(j->platform.context, q->writes[i].bytes,
					    NVJ_BLOCK_BYTES);
}

/*
 * The block is in no list, and the caller holds its lock. It enters the list
 * again if not all of it is at home.
 */
static void keep_if_dirty(struct nvj *j, struct nvj_block *b)
{
	struct nvj_image *spare;

	nvj_frozen_trim(j, b);
	b->dirty = false;
	if (b->frozen || (b->image && b->image->tid > b->home_tid)) {
		nvj_block_dirty(j, b);
		return;
	}
	/*
	 * All is at home. If no open handle counts on a spare image, other
	 * blocks may have it.
	 */
	if (nvj_load(&b->newest_tid) > nvj_load_sc(&j->committed))
		return;
	b->promised = 0;
	while ((spare = nvj_spare_take(b)) != NULL)
		nvj_image_give(j, b->lists, spare);
}

/*
 * The caller holds the block's lock. After the unlock the entry may be reused
 * for another block.
 */
static void ended(struct nvj *j, struct nvj_home_queue *q, struct nvj_home_write *w)
{
	struct nvj_block *b = w->block;

	b->writing = false;
	/* nvj_bring_home has not taken the block from its list. */
	if (q->round)
		keep_if_dirty(j, b);
	else
		nvj_frozen_trim(j, b);
	w->next = q->free_writes;
	q->free_writes = w;
}

static void finish_one(struct nvj *j, struct nvj_home_queue *q)
{
	struct nvj_write *write = j->platform.finish_write(j->platform.context, q->number);
	struct nvj_home_write *w = write->owner;
	struct nvj_block *b = w->block;

	q->under_way--;
	nvj_lock(&b->lock, &j->platform);
	if (!write->error) {
		if (w->tid > b->home_tid)
			b->home_tid = w->tid;
		nvj_count(&j->blocks_home, 1);
	}
	ended(j, q, w);
	nvj_block_unlock(j, b);
	if (write->error)
		nvj_abort_at(j, NVJ_EIO, write->block);
	nvj_ring_bell(&j->written, &j->platform);
}

/*
 * If the queue is full, waits until half of the writes have ended. So many
 * writes start together, and a disk can merge neighbours.
 */
static void make_room(struct nvj *j, struct nvj_home_queue *q)
{
	if (q->under_way == NVJ_QUEUE_DEPTH)
		while (q->under_way > NVJ_QUEUE_DEPTH / 2)
			finish_one(j, q);
}

static void finish_all(struct nvj *j, struct nvj_home_queue *q)
{
	while (q->under_way)
		finish_one(j, q);
}

/* The caller holds the block's lock. NULL: there is nothing to write. */
static struct nvj_home_write *prepare(struct nvj *j, struct nvj_home_queue *q, struct nvj_block *b)
{
	struct nvj_image *image = choose(j, b);
	struct nvj_home_write *w = q->free_writes;

	if (!image)
		return NULL;
	q->free_writes = w->next;
	b->writing = true;
	b->writing_revoked_by = image->revoked_by;
	copy_version(b, image, w->bytes);
	w->block = b;
	w->tid = image->tid;
	w->write = (struct nvj_write){.block = nvj_load(&b->number), .image = w->bytes, .owner = w};
	return w;
}

static void start_one(struct nvj *j, struct nvj_home_queue *q, struct nvj_home_write *w)
{
	struct nvj_block *b = w->block;

	if (!j->platform.start_write(j->platform.context, q->number, &w->write)) {
		q->under_way++;
		return;
	}
	nvj_lock(&b->lock, &j->platform);
	ended(j, q, w);
	nvj_block_unlock(j, b);
	nvj_abort_at(j, NVJ_EIO, w->write.block);
	nvj_ring_bell(&j->written, &j->platform);
}

void nvj_home_await(struct nvj *j, struct nvj_block *b,
		    bool (*such)(struct nvj *j, const struct nvj_block *b))
{
	while (such(j, b)) {
		uint32_t rings;

		nvj_block_unlock(j, b);
		rings = nvj_attend(&j->written);
		nvj_lock(&b->lock, &j->platform);
		if (such(j, b)) {
			nvj_block_unlock(j, b);
			j->platform.wait(j->platform.context, &j->written.rings, rings,
					 NVJ_SAFETY_NS);
			nvj_lock(&b->lock, &j->platform);
		}
		nvj_leave(&j->written);
	}
}

static bool is_written(struct nvj *j, const struct nvj_block *b)
{
	(void)j;
	return b->writing;
}

void nvj_home_write_partition(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_home_queue *q = &p->home;
	struct nvj_block *b;

	nvj_lock(&p->list_lock, &j->platform);
	b = p->dirty;
	p->dirty = NULL;
	nvj_unlock(&p->list_lock, &j->platform);

	b = by_number(b);
	while (b) {
		/*
		 * Read before the block is finished: then it may be in the list
		 * again.
		 */
		struct nvj_block *next;
		struct nvj_home_write *w = NULL;

		make_room(j, q);
		nvj_lock(&b->lock, &j->platform);
		next = b->dirty_next;
		/* nvj_bring_home is writing it. */
		nvj_home_await(j, b, is_written);
		if (!nvj_load_sc(&j->aborted))
			w = prepare(j, q, b);
		if (!w)
			keep_if_dirty(j, b);
		nvj_block_unlock(j, b);
		if (w)
			start_one(j, q, w);
		b = next;
	}
	finish_all(j, q);
}

/*
 * NULL: all of the block is at home, or it was never in the journal. Otherwise
 * it is locked, and no version of it is being written.
 */
static struct nvj_block *lock_quiet(struct nvj *j, struct nvj_home_queue *q, uint64_t number)
{
	struct nvj_partition *p = &j->partition[nvj_partition_of(j, number)];
	struct nvj_block *b;

	while ((b = nvj_block_lock(j, p, number)) && is_written(j, b)) {
		nvj_block_unlock(j, b);
		/* The round that writes it may wait for one of our writes. */
		finish_all(j, q);
		nvj_lock(&b->lock, &j->platform);
		/*
		 * Meanwhile the entry may be another block's: then this waits
		 * in vain for a short time.
		 */
		nvj_home_await(j, b, is_written);
		nvj_block_unlock(j, b);
	}
	return b;
}

static int bring_one(struct nvj *j, struct nvj_home_queue *q, uint64_t number)
{
	struct nvj_block *b = lock_quiet(j, q, number);
	struct nvj_home_write *w = NULL;
	bool committed;

	if (!b)
		return 0;
	committed = !b->later && (!b->image || b->image->tid <= nvj_load_sc(&j->sealed));
	if (committed)
		w = prepare(j, q, b);
	nvj_block_unlock(j, b);
	if (w)
		start_one(j, q, w);
	return committed ? 0 : NVJ_EAGAIN;
}

int nvj_bring_home(struct nvj *j, const uint64_t *blocks, unsigned count, bool flush)
{
	struct nvj_home_queue *q = &j->brought;
	int error = 0;

	if (nvj_load_sc(&j->aborted))
		return NVJ_EROFS;
	nvj_lock(&j->brought_lock, &j->platform);
	for (unsigned i = 0; i < count && !error; i++) {
		make_room(j, q);
		error = bring_one(j, q, blocks[i]);
	}
	finish_all(j, q);
	nvj_unlock(&j->brought_lock, &j->platform);
	if (!error && nvj_load_sc(&j->aborted))
		error = NVJ_EIO;
	/*
	 * Unless everything is at home: a round may have written blocks and not
	 * flushed yet.
	 */
	if (!error && flush && nvj_load_sc(&j->tail) < nvj_load_sc(&j->sealed) &&
	    j->platform.flush(j->platform.context)) {
		error = NVJ_EIO;
		nvj_abort_at(j, NVJ_EIO, NVJ_NO_BLOCK);
	}
	return error;
}
