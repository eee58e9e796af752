/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Revoke: the block was freed. When the revoke's transaction is sealed, earlier
 * logged versions of the block are not written home any more. Until then an
 * earlier committed version must still be written home, because the revoke may
 * not survive a crash. So that version is kept, frozen, with the transaction
 * that ends it.
 */
#include "journal.h"

static void mark_versions(struct nvj *j, struct nvj_block *b, uint64_t tid)
{
	struct nvj_image *image = b->image;

	for (struct nvj_image *v = b->frozen; v; v = v->next)
		if (!v->revoked_by || v->revoked_by > tid)
			v->revoked_by = tid;
	if (b->writing && (!b->writing_revoked_by || b->writing_revoked_by > tid))
		b->writing_revoked_by = tid;
	if (!image || !image->tid)
		return;
	if (image->tid < tid && image->tid > b->home_tid) {
		image->revoked_by = tid;
		image->lines = NVJ_ALL_LINES;
		image->next = b->frozen;
		b->frozen = image;
		b->image = NULL;
		nvj_frozen_trim(j, b);
	} else {
		/*
		 * It is at home already. Or it belongs to the revoke's own
		 * transaction, or to one that commits together with it. So
		 * there is no version any more.
		 */
		image->tid = 0;
	}
}

int nvj_revoke(struct nvj_handle *h, uint64_t block)
{
	struct nvj *j = h->journal;
	struct nvj_block *b;
	uint64_t newest;
	int lines;

	if (nvj_load(&j->aborted))
		return NVJ_EROFS;
	if (block == NVJ_NO_BLOCK)
		return NVJ_EINVAL;
	if (h->credits == 0)
		return NVJ_ENOSPC;
	b = nvj_block_make(h, block, false);
	if (!b)
		return NVJ_ENOMEM;
	lines = nvj_later_write(h, b);
	if (lines < 0) {
		nvj_block_unlock(j, b);
		return lines;
	}
	nvj_later_drop(j, b);
	newest = nvj_load(&b->newest_tid);
	if (newest > h->tid)
		nvj_raise_sc(&j->merge_to, newest);
	else
		nvj_store_release(&b->newest_tid, h->tid);
	/*
	 * The next user of the block starts anew: it accesses the block again,
	 * and logs all of it.
	 */
	nvj_store_release(&b->access_tid, 0);
	b->created = true;
	lines = nvj_record_log(h, b, NVJ_REVOKE, 0, NULL);
	if (lines > 0) {
		mark_versions(j, b, h->tid);
		nvj_block_list(j, b, NVJ_LIST_REVOKED, h->tid);
	}
	nvj_block_unlock(j, b);
	if (lines < 0)
		return lines;

	nvj_count(&j->cpu[h->cpu].revokes, 1);
	nvj_handle_placed(h);
	return 0;
}

static bool dead_is_written(struct nvj *j, const struct nvj_block *b)
{
	return b->writing && b->writing_revoked_by &&
	       b->writing_revoked_by <= nvj_load_sc(&j->sealed);
}

/*
 * Waits until no revoked version is being written, and returns the next block.
 * A round checks whether a version is revoked, and marks that it writes it,
 * under the block's lock. sealed was stored before this thread takes that lock.
 * So either the round sees that the version is revoked, or this thread sees the
 * mark and waits.
 */
static struct nvj_block *drop_revoked(struct nvj *j, struct nvj_block *b, uint64_t tid)
{
	struct nvj_block *next;

	nvj_lock(&b->lock, &j->platform);
	next = nvj_listed_next(b, NVJ_LIST_REVOKED, tid);
	nvj_home_await(j, b, dead_is_written);
	nvj_frozen_trim(j, b);
	nvj_block_unlock(j, b);
	return next;
}

void nvj_revokes_seal(struct nvj *j, uint64_t tid)
{
	for (unsigned i = 0; i < j->partitions; i++) {
		struct nvj_block *b = nvj_listed_take(j, &j->partition[i], NVJ_LIST_REVOKED, tid);

		while (b)
			b = drop_revoked(j, b, tid);
	}
}
