// SPDX-License-Identifier: GPL-2.0
/*
 * The logging of a JFS transaction.
 *
 * JFS writes log records while it commits a transaction. Each record names a
 * metapage, which only this transaction can change at that time. These pages are
 * noted. The changes of the persistent maps, of blocks and of inodes, are noted,
 * too (maps.c). Then one handle of the engine is opened, which logs all of them, and is
 * closed. An open handle never waits for a lock of JFS, so a thread may wait for
 * room in the journal whatever locks of JFS it holds.
 *
 * A page that the transaction itself frees is not logged.
 */
#include <linux/sched/mm.h>

#include "transaction.h"
#include "trace.h"

/* Never fails: a transaction that is being committed cannot be taken back. */
void *jfsnvj_grow(void *at, unsigned int *most, unsigned int count, size_t size)
{
	unsigned int flags = memalloc_nofs_save();
	unsigned int bigger = *most ? *most * 2 : 8;
	void *to = kvmalloc_array(bigger, size, GFP_KERNEL | __GFP_NOFAIL);

	memcpy(to, at, count * size);
	kvfree(at);
	*most = bigger;
	memalloc_nofs_restore(flags);
	return to;
}

static struct jfsnvj_tx *tx_of(struct tblock *tblk)
{
	if (!tblk->nvj)
		tblk->nvj = kzalloc(sizeof(*tblk->nvj), GFP_NOFS | __GFP_NOFAIL);
	return tblk->nvj;
}

static void free_tx(struct jfsnvj_tx *tx)
{
	kvfree(tx->pages.at);
	kvfree(tx->maps.at);
	kvfree(tx->changes.at);
	kvfree(tx->revokes.at);
	kfree(tx);
}

/* --- Notes ------------------------------------------------------------------------ */

/*
 * The lines that may differ from what was there before the lock. A lock names them, but
 * that of an extent tree uses its names for something else, too, and xtInsert changes
 * such a page before it locks it. So all lines of these pages may differ.
 */
static u64 lines_of(const struct tlock *tlck)
{
	const struct linelock *lock = (const struct linelock *)&tlck->lock;
	/* JFS sets it in the first of the chain only (txLinelock). */
	const u8 line_log2 = lock->l2linesize;
	u64 lines = 0;
	s8 i;

	if ((tlck->type & tlckTYPE) == tlckXTREE)
		return NVJ_ALL_LINES;
	for (; lock; lock = lock->next ? (struct linelock *)lid_to_tlock(lock->next) : NULL) {
		for (i = 0; i < lock->index; i++) {
			u32 first = lock->lv[i].offset << line_log2;
			u32 bytes = lock->lv[i].length << line_log2;

			if (bytes && first + bytes <= NVJ_BLOCK_BYTES)
				lines |= lines_mask(first, first + bytes - 1);
		}
	}
	return lines;
}

void jfsnvj_note(struct tblock *tblk, const struct lrd *lrd, struct tlock *tlck)
{
	struct jfsnvj_tx *tx = tx_of(tblk);

	switch (le16_to_cpu(lrd->type)) {
	case LOG_REDOPAGE:
		/* What is in an inode in memory was copied to its page. */
		if (tlck && tlck->flag & tlckPAGELOCK)
			*ADD(&tx->pages) = (struct page_note){tlck, lines_of(tlck)};
		break;
	case LOG_NOREDOINOEXT:
		/*
		 * Its blocks are freed and revoked with the changes of the block map. diFree
		 * holds the map's commit_mutex.
		 */
		jfsnvj_find_iag(tx, JFS_SBI(tblk->sb)->ipimap,
				le32_to_cpu(lrd->log.noredoinoext.iagnum),
				le32_to_cpu(lrd->log.noredoinoext.inoext_idx));
		break;
	default:
		break;
	}
}

/* --- Logging ----------------------------------------------------------------------- */

static u32 credits(const struct jfsnvj *j, const struct jfsnvj_tx *tx)
{
	u64 lines = tx->pages.count * (u64)NVJ_BLOCK_CREDITS + tx->revokes.count;
	unsigned int i;

	for (i = 0; i < tx->maps.count; i++)
		lines += 2 + hweight64(tx->maps.at[i].most) +
			 bitmap_weight(tx->maps.at[i].extents, EXTSPERIAG);
	return min_t(u64, max_t(u64, lines, 1), nvj_max_credits(j->nvj));
}

static int log_map(struct jfsnvj *j, struct jfsnvj_tx *tx, u32 number)
{
	const struct map *map = &tx->maps.at[number];
	struct mutex *lock = &j->map_lock[map->block % JFSNVJ_MAP_LOCKS];
	struct iag *iag = map->mp->nvj_iag;
	const void *image = iag ?: map->mp->data;
	unsigned int i;
	u64 mask = 0;
	int lines;

	mutex_lock(lock);
	/*
	 * The image has the page before the change. Its other half may change. If all
	 * is in the map already, another transaction has logged it, which this call
	 * lets commit first or together with this one.
	 */
	lines = nvj_access(&tx->handle, map->block, image);
	if (!lines) {
		for (i = 0; i < tx->changes.count; i++)
			if (tx->changes.at[i].map == number)
				mask |= jfsnvj_apply(map, &tx->changes.at[i]);
		if (iag)
			mask |= jfsnvj_iag_lines(map->mp, map->extents);
		if (mask)
			lines = nvj_log(&tx->handle, map->block, image, mask);
	}
	mutex_unlock(lock);
	return lines;
}

static int log_page(struct jfsnvj *j, struct jfsnvj_tx *tx, const struct page_note *page)
{
	struct metapage *mp = page->tlck->mp;
	int error;

	/*
	 * The transaction has freed the page, too: a name's new place splits the page
	 * before it, and its removal empties this one. The block soon has something else.
	 */
	if (test_bit(META_discard, &mp->flag)) {
		jfsnvj_makes_page(mp);
		return 0;
	}
	/*
	 * A record has what differs from the one before. The first one is compared with
	 * what the disk has. If that is not known (known.c), it is the whole page.
	 */
	if (page->tlck->type & tlckNEW || mp->nvj_revoked)
		error = nvj_create(&tx->handle, mp->index);
	else
		error = nvj_access(&tx->handle, mp->index, jfsnvj_before(mp, page->changed));
	jfsnvj_logged(mp);
	if (error)
		return error;
	mp->nvj_revoked = false;
	mp->nvj_tid = tx->handle.tid;
	return nvj_log(&tx->handle, mp->index, mp->data,
		       j->mount->options.whole_blocks ? NVJ_ALL_LINES : NVJ_COMPARE);
}

static void failed(struct jfsnvj *j, u64 block, int error)
{
	if (error == NVJ_EROFS)
		return;
	nvjk_say(j->sb, KERN_ERR, "block %llu cannot be journaled: %s (%d)", block,
		 nvj_strerror(error), error);
	nvj_abort(j->nvj, error);
}

/* What one call of the engine does under the lock that option lock=one has. */
#define UNDER_ONE_LOCK(j, call)                                                                    \
	({                                                                                         \
		int result_;                                                                       \
                                                                                                   \
		jfsnvj_lock_one(j);                                                                \
		result_ = (call);                                                                  \
		jfsnvj_unlock_one(j);                                                              \
		result_;                                                                           \
	})

/*
 * Other transactions wait for pages of inodes. So pages are logged first, and released: another
 * transaction that changes such a page now logs it after this one, and is committed together
 * with it or later.
 */
static void log_all(struct jfsnvj *j, struct jfsnvj_tx *tx, struct tblock *tblk)
{
	unsigned int i;
	int error;

	for (i = 0; i < tx->pages.count; i++) {
		error = UNDER_ONE_LOCK(j, log_page(j, tx, &tx->pages.at[i]));
		if (error < 0)
			failed(j, tx->pages.at[i].tlck->mp->index, error);
	}
	txRelease(tblk);
	for (i = 0; i < tx->maps.count; i++) {
		error = UNDER_ONE_LOCK(j, log_map(j, tx, i));
		if (error < 0)
			failed(j, tx->maps.at[i].block, error);
	}
	for (i = 0; i < tx->revokes.count; i++) {
		error = UNDER_ONE_LOCK(j, nvj_revoke(&tx->handle, tx->revokes.at[i].block));
		if (error < 0)
			failed(j, tx->revokes.at[i].block, error);
	}
}

/*
 * JFS extends the file system, and writes its pages in place. So there is nothing to log,
 * and no other transaction.
 */
static void apply_all(struct jfsnvj_tx *tx)
{
	unsigned int i;

	for (i = 0; i < tx->changes.count; i++)
		(void)jfsnvj_apply(&tx->maps.at[tx->changes.at[i].map], &tx->changes.at[i]);
}

/* From now on the pages that were freed wait for the tail to pass this one. */
static void end_revokes(struct jfsnvj_tx *tx, u64 tid)
{
	unsigned int i;

	for (i = 0; i < tx->revokes.count; i++) {
		struct folio *folio = tx->revokes.at[i].folio;
		struct metapage *mp;

		folio_lock(folio);
		mp = folio_get_private(folio);
		if (mp && mp->nvj_revoked)
			mp->nvj_tid = tid;
		folio_unlock(folio);
		folio_put(folio);
	}
}

/* Opens the handle. It may wait for room in the log. */
static int start(struct jfsnvj *j, struct nvj_handle *handle, u32 lines)
{
	int error;

	trace_jfsnvj_transaction_wait(j->sb->s_dev);
	error = nvj_start(j->nvj, handle, lines);
	if (!error)
		trace_jfsnvj_transaction_start(j->sb->s_dev, handle->tid);
	return error;
}

/* Ends the handle, in which so many blocks were logged. Returns its transaction. */
static u64 stop(struct jfsnvj *j, struct nvj_handle *handle, const struct inode *inode, u32 blocks)
{
	s64 newest = atomic64_read(&j->newest);
	u64 tid;

	trace_jfsnvj_transaction_stats(j->sb->s_dev, handle->tid, inode, blocks,
				       handle->taken - handle->credits);
	jfsnvj_lock_one(j);
	tid = nvj_stop(handle);
	jfsnvj_unlock_one(j);
	while (newest < (s64)tid && !atomic64_try_cmpxchg(&j->newest, &newest, tid))
		;
	return tid;
}

static u64 log_in_handle(struct jfsnvj *j, struct jfsnvj_tx *tx, struct tblock *tblk)
{
	int error = start(j, &tx->handle, credits(j, tx));

	if (!error) {
		log_all(j, tx, tblk);
		return stop(j, &tx->handle, tblk->nvj_inode, tx->maps.count + tx->pages.count);
	}
	txRelease(tblk);
	/* The caller's transaction counts as committed, so blocks that it frees must stay. */
	WRITE_ONCE(j->aborted, true);
	if (error != NVJ_EROFS)
		failed(j, 0, error);
	return 0;
}

void jfsnvj_log_transaction(struct jfsnvj *j, struct tblock *tblk)
{
	struct jfsnvj_tx *tx = tx_of(tblk);
	unsigned int nofs = memalloc_nofs_save(), i;
	u64 tid = 0;

	txUpdateMap(tblk);
	if (READ_ONCE(j->before)) {
		apply_all(tx);
		txRelease(tblk);
	} else {
		tid = log_in_handle(j, tx, tblk);
	}
	end_revokes(tx, tid);
	for (i = 0; i < tx->maps.count; i++)
		metapage_homeok(tx->maps.at[i].mp);
	tblk->nvj = NULL;
	tblk->nvj_tid = tid;
	free_tx(tx);
	memalloc_nofs_restore(nofs);
}

bool jfsnvj_ends_at_once(const struct jfsnvj *j, const struct tblock *tblk)
{
	const struct maplock *maplock;
	const struct tlock *tlck;
	lid_t lid;
	int i;

	if (!(tblk->xflag & COMMIT_LAZY) || tblk->xflag & COMMIT_DELETE || READ_ONCE(j->before))
		return false;
	for (lid = tblk->next; lid; lid = tlck->next) {
		tlck = lid_to_tlock(lid);
		if (tlck->flag & tlckFREEPAGE)
			return false;
		if (!(tlck->flag & tlckUPDATEMAP))
			continue;
		maplock = (const struct maplock *)&tlck->lock;
		for (i = maplock->index; i > 0; i--, maplock++)
			if (!(maplock->flag & mlckALLOC))
				return false;
	}
	return true;
}

void jfsnvj_write_new(struct metapage *mp, s64 block)
{
	struct jfsnvj *j = jfsnvj_of(mp->sb);
	unsigned int nofs = memalloc_nofs_save();
	struct nvj_handle *handle = kmalloc(sizeof(*handle), GFP_KERNEL | __GFP_NOFAIL);
	int error;

	error = start(j, handle, NVJ_BLOCK_CREDITS);
	if (!error) {
		error = nvj_create(handle, block);
		if (!error)
			error = nvj_log(handle, block, mp->data, NVJ_ALL_LINES);
		jfsnvj_logged(mp);
		mp->nvj_revoked = false;
		mp->nvj_tid = handle->tid;
		(void)stop(j, handle, NULL, 1);
	}
	if (error < 0)
		failed(j, block, error);
	kfree(handle);
	write_metapage(mp);
	memalloc_nofs_restore(nofs);
}
