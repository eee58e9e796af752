/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A block before its first change by a handle: an image of it to compare with,
 * and memory for what nvj_log may want, which must not fail.
 */
#include "journal.h"

/*
 * Transaction tid accesses the block: if a later one has already, its operation
 * may be half in what tid logs, so they commit together. Under the block's lock.
 */
static void note_transaction(struct nvj *j, struct nvj_block *b, uint64_t tid)
{
	uint64_t newest = nvj_load(&b->newest_tid);

	if (newest > tid)
		nvj_raise_sc(&j->merge_to, newest);
	else
		nvj_store_release(&b->newest_tid, tid);
}

/*
 * A spare for each freeze that may come: each transaction freezes the version of
 * an earlier one at its first record, and that takes a spare which its first
 * access has put here. A transaction that comes after a later one cannot tell
 * whether it has put its own already: one more does no harm.
 */
static bool find_spare(struct nvj *j, struct nvj_partition *p, struct nvj_block *b, uint64_t tid)
{
	uint64_t newest = nvj_load(&b->newest_tid);
	struct nvj_image *spare;

	_Static_assert(NVJ_GROUP == 3, "spares");
	if (newest == tid || (newest < tid && newest <= b->home_tid))
		return true;
	if (b->spares && b->spares->next && b->spares->next->next)
		return true; /* no more than NVJ_GROUP have handles open at a time */
	spare = nvj_image_take(j, p);
	if (!spare)
		return false;
	spare->next = b->spares;
	b->spares = spare;
	return true;
}

static int prepare(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		   const void *image, bool created)
{
	struct nvj *j = h->journal;
	uint64_t newest = nvj_load(&b->newest_tid);
	bool fresh = false;

	if (!find_spare(j, p, b, h->tid))
		return NVJ_ENOMEM;
	if (!b->image) {
		b->image = nvj_image_take(j, p);
		if (!b->image)
			return NVJ_ENOMEM;
		fresh = true;
	}
	/*
	 * All is at home, and nobody has changed the caller's memory in a
	 * transaction that is not committed: that memory is the truth, our image
	 * only as long as the block was changed by us alone.
	 */
	if (b->image->tid <= b->home_tid && newest <= nvj_load_sc(&j->committed))
		fresh = true;
	if (created || (fresh && !image))
		b->created = true;
	else if (fresh)
		__builtin_memcpy(b->image->bytes, image, NVJ_BLOCK_BYTES);
	note_transaction(j, b, h->tid);
	if (nvj_load(&b->access_tid) < h->tid)
		nvj_store_release(&b->access_tid, h->tid);
	return 0;
}

static int prepare_block(struct nvj_handle *h, struct nvj_partition *p, uint64_t block,
			 const void *image, bool created)
{
	struct nvj *j = h->journal;
	struct nvj_block *b;
	int error;

	if (block == NVJ_NO_BLOCK)
		return NVJ_EINVAL;
	b = nvj_block_make(j, p, block);
	if (!b)
		return NVJ_ENOMEM;
	error = prepare(h, p, b, image, created);
	nvj_block_unlock(j, b);
	return error;
}

int nvj_access(struct nvj_handle *h, uint64_t block, const void *image)
{
	struct nvj *j = h->journal;
	struct nvj_partition *p = &j->partition[nvj_partition_of(j, block)];
	struct nvj_block *b = nvj_block_find(j, p, block);

	if (nvj_load(&j->aborted))
		return NVJ_EROFS;
	/*
	 * Accessed by this transaction, and by none later: nothing is to be done.
	 * The number is read last, for an entry with this tid stays the block's.
	 */
	if (b && nvj_load_acquire(&b->access_tid) == h->tid && nvj_load(&b->number) == block)
		return 0;
	return prepare_block(h, p, block, image, false);
}

int nvj_create(struct nvj_handle *h, uint64_t block)
{
	struct nvj *j = h->journal;

	if (nvj_load(&j->aborted))
		return NVJ_EROFS;
	return prepare_block(h, &j->partition[nvj_partition_of(j, block)], block, NULL, true);
}

void nvj_merge(struct nvj_handle *h, uint64_t tid)
{
	if (tid > h->tid)
		nvj_raise_sc(&h->journal->merge_to, tid);
}

bool nvj_peek(struct nvj *j, uint64_t block, void *image)
{
	struct nvj_partition *p = &j->partition[nvj_partition_of(j, block)];
	struct nvj_block *b = nvj_block_lock(j, p, block);
	bool found;

	if (!b)
		return false;
	found = b->image && b->image->tid > b->home_tid;
	if (found)
		__builtin_memcpy(image, b->image->bytes, NVJ_BLOCK_BYTES);
	nvj_block_unlock(j, b);
	return found;
}
