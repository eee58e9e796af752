/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * nvj_access: runs before a handle changes a block for the first time. It saves
 * an image of the block for the comparison, and it allocates the memory that
 * nvj_log may need, because nvj_log must not fail.
 */
#include "journal.h"

/*
 * Notes that transaction tid accesses the block. A later transaction may have
 * accessed it before: then its operation may be partly contained in what tid
 * logs, so both transactions commit together. The caller holds the block's
 * lock.
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
 * Promises one spare image for each possible freeze. The first record of a
 * transaction freezes the version of an earlier transaction, and this takes the
 * spare image that the transaction's first access was promised. A transaction
 * that accesses the block after a later one cannot tell whether it was promised
 * a spare image before. One more does no harm. If no open transaction has
 * accessed the block, earlier promises are void.
 */
static bool find_spare(struct nvj *j, struct nvj_block *b, uint64_t tid)
{
	uint64_t newest = nvj_load(&b->newest_tid);
	struct nvj_image *spare;

	_Static_assert(NVJ_GROUP == 3, "spares");
	if (newest == tid || (newest < tid && newest <= b->home_tid))
		return true;
	if (b->spare_count <= b->promised && newest <= nvj_load_sc(&j->committed))
		b->promised = 0;
	if (b->promised == NVJ_GROUP)
		return true; /* at most NVJ_GROUP transactions have open handles at a time */
	if (b->spare_count <= b->promised) {
		spare = nvj_image_take(j, b->lists);
		if (!spare)
			return false;
		nvj_spare_put(b, spare);
	}
	b->promised++;
	return true;
}

static int prepare(struct nvj_handle *h, struct nvj_block *b, const void *image, bool created)
{
	struct nvj *j = h->journal;
	uint64_t newest = nvj_load(&b->newest_tid);
	bool fresh = false;
	int error;

	/* Before find_spare: its record may take a spare image. */
	error = nvj_later_write(h, b);
	if (error)
		return error;
	if (!find_spare(j, b, h->tid))
		return NVJ_ENOMEM;
	if (!b->image) {
		b->image = nvj_image_take(j, b->lists);
		if (!b->image)
			return NVJ_ENOMEM;
		fresh = true;
	}
	/*
	 * All versions are at home, and no uncommitted transaction has changed
	 * the caller's memory. So the caller's memory is the valid content. Our
	 * image is valid only as long as the journal alone changed the block.
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

static int prepare_block(struct nvj_handle *h, uint64_t block, const void *image, bool created)
{
	struct nvj_block *b;
	int error;

	if (block == NVJ_NO_BLOCK)
		return NVJ_EINVAL;
	b = nvj_block_make(h, block, true);
	if (!b)
		return NVJ_ENOMEM;
	h->last = b;
	error = prepare(h, b, image, created);
	nvj_block_unlock(h->journal, b);
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
	 * This transaction has accessed the block, and no later one has:
	 * nothing is left to do. The number is read last, because an entry with
	 * this tid is not reused for another block.
	 */
	if (b && nvj_load_acquire(&b->access_tid) == h->tid && nvj_load(&b->number) == block) {
		h->last = b;
		return 0;
	}
	return prepare_block(h, block, image, false);
}

int nvj_create(struct nvj_handle *h, uint64_t block)
{
	if (nvj_load(&h->journal->aborted))
		return NVJ_EROFS;
	return prepare_block(h, block, NULL, true);
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
	found = b->later || (b->image && b->image->tid > b->home_tid);
	if (found)
		__builtin_memcpy(image, b->later ? b->later : b->image->bytes, NVJ_BLOCK_BYTES);
	nvj_block_unlock(j, b);
	return found;
}
