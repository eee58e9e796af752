// SPDX-License-Identifier: GPL-2.0
/*
 * What a JFS transaction has changed, and its logging.
 *
 * JFS writes log records while it commits a transaction. Each record names a
 * metapage, which only this transaction can change at that time. These pages are
 * noted. The changes of the persistent maps, of blocks and of inodes, are noted,
 * too. Then one handle of the engine is opened, which logs all of them, and is
 * closed. An open handle never waits for a lock of JFS, so a thread may wait for
 * room in the journal whatever locks of JFS it holds.
 *
 * A page of a map has the persistent map and the working map. Only the persistent
 * one is changed and logged here, together with the transaction: its lines by mask.
 * The rest of the page, in the engine's image, has any content. When the disk needs
 * recovery, it is made anew from the persistent part (nvjournal/jfs). Where extents of
 * inodes are is persistent, too, and JFS changes it early: see known.c.
 *
 * Blocks that are freed may have logged versions, which must not be carried home
 * when the block is used for something else. Their metapages are in memory as long
 * as the journal has such a version (home.c), so they are found there, and revoked.
 * A page that the transaction itself frees is not logged.
 */
#include <linux/sched/mm.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#include <linux/folio_batch.h>
#else
#include <linux/pagevec.h>
#endif

#include "journal.h"
#include "jfs_dmap.h"
#include "jfs_imap.h"
#include "jfs_xtree.h"
#include "trace.h"

/* A page of a map that the transaction changes. */
struct map {
	struct metapage *mp;
	u64 block;
	u64 most;      /* the lines that it may log */
	u32 bits_byte; /* where the persistent map begins in the page */
	/* Of a page of the inode map: the extents of its inodes. */
	DECLARE_BITMAP(extents, EXTSPERIAG);
};

/* Bits of a persistent map. */
struct change {
	u32 map;
	u32 first, count;
	bool free;
};

/* A page that is logged by comparison. */
struct page_note {
	struct tlock *tlck;
	u64 changed; /* lines that JFS says it has changed */
};

struct revoke {
	u64 block;
	struct folio *folio;
};

/* Grows as needed. */
#define LIST(type)                                                                                 \
	struct {                                                                                   \
		type *at;                                                                          \
		unsigned int count, most;                                                          \
	}

struct jfsnvj_tx {
	struct nvj_handle handle;
	LIST(struct page_note) pages;
	LIST(struct map) maps;
	LIST(struct change) changes;
	LIST(struct revoke) revokes;
};

/* Never fails: a transaction that is being committed cannot be taken back. */
static void *grow(void *at, unsigned int *most, unsigned int count, size_t size)
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

/* A new last element of the list. */
#define ADD(list)                                                                                  \
	({                                                                                         \
		if ((list)->count == (list)->most)                                                 \
			(list)->at = grow((list)->at, &(list)->most, (list)->count,                \
					  sizeof(*(list)->at));                                    \
		&(list)->at[(list)->count++];                                                      \
	})

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

bool jfsnvj_is_logging(const struct tblock *tblk)
{
	return tblk->nvj;
}

int jfsnvj_maptype(const struct tblock *tblk, int maptype)
{
	if (!tblk)
		return maptype;
	if (jfsnvj_is_logging(tblk))
		return maptype == COMMIT_WMAP ? 0 : COMMIT_PMAP;
	return maptype == COMMIT_PMAP ? 0 : COMMIT_WMAP;
}

/* --- Maps ------------------------------------------------------------------------ */

u64 jfsnvj_map_block(struct inode *map, s64 page)
{
	int flags, length;
	s64 address;

	if (xtLookup(map, page, 1, &flags, &address, &length, 0) || length < 1)
		return 0;
	return address;
}

/*
 * The number in tx->maps of a page of a map, which is read if necessary, and stays
 * in memory until the transaction is logged. Negative: it cannot be read.
 */
static int find_map(struct jfsnvj_tx *tx, struct inode *inode, s64 page, u32 bits_byte)
{
	struct metapage *mp;
	struct map *map;
	u64 block;
	unsigned int i;

	mp = read_metapage(inode, page, PSIZE, 0);
	if (!mp)
		return -EIO;
	if (inode == JFS_SBI(inode->i_sb)->ipimap)
		jfsnvj_reads_iag(mp);
	for (i = tx->maps.count; i > 0; i--) {
		if (tx->maps.at[i - 1].mp != mp)
			continue;
		release_metapage(mp);
		return i - 1;
	}
	block = mp->nvj_block ?: jfsnvj_map_block(inode, page);
	if (!block) {
		release_metapage(mp);
		return -EIO;
	}
	mp->nvj_block = block;
	metapage_nohomeok(mp);
	release_metapage(mp);
	map = ADD(&tx->maps);
	*map = (struct map){.mp = mp, .block = block, .bits_byte = bits_byte};
	return tx->maps.count - 1;
}

static u64 lines_mask(u32 first_byte, u32 last_byte)
{
	return GENMASK_ULL(last_byte / NVJ_LINE_BYTES, first_byte / NVJ_LINE_BYTES);
}

static void add_change(struct jfsnvj_tx *tx, int map, u32 first, u32 count, bool free)
{
	struct change *change = ADD(&tx->changes);
	struct map *m = &tx->maps.at[map];
	/* A word of 32 bits is stored as a whole. */
	u32 first_word = first / 32 * 4, last_word = (first + count - 1) / 32 * 4;

	*change = (struct change){.map = map, .first = first, .count = count, .free = free};
	m->most |= lines_mask(m->bits_byte + first_word, m->bits_byte + last_word);
}

/*
 * The first block is the highest bit of the first word. Returns the lines that differ
 * now. JFS allocates an extent of inodes again for each inode that is created in it.
 */
static u64 apply(const struct map *map, const struct change *change)
{
	__le32 *words = (__le32 *)((u8 *)map->mp->data + map->bits_byte);
	u32 bit = change->first, left = change->count;
	u64 lines = 0;

	while (left) {
		u32 in_word = bit % 32, count = min(left, 32 - in_word);
		u32 mask = (count == 32 ? ~0u : ((1u << count) - 1) << (32 - in_word - count));
		u32 before = le32_to_cpu(words[bit / 32]);
		u32 word = change->free ? before & ~mask : before | mask;

		if (word != before) {
			u32 at = map->bits_byte + bit / 32 * 4;

			words[bit / 32] = cpu_to_le32(word);
			lines |= lines_mask(at, at);
		}
		bit += count;
		left -= count;
	}
	return lines;
}

/*
 * Blocks are freed: JFS itself writes their pages from now on (home.c). Notes the
 * versions that the journal has.
 */
static void revoke_range(struct jfsnvj_tx *tx, struct super_block *sb, s64 first, s64 count)
{
	struct address_space *mapping = JFS_SBI(sb)->direct_inode->i_mapping;
	u64 tail = nvj_tail(jfsnvj_of(sb)->nvj);
	pgoff_t next = first;
	struct folio_batch batch;
	unsigned int i;

	folio_batch_init(&batch);
	while (filemap_get_folios(mapping, &next, first + count - 1, &batch)) {
		for (i = 0; i < folio_batch_count(&batch); i++) {
			struct folio *folio = batch.folios[i];
			struct revoke *revoke;
			struct metapage *mp;

			folio_lock(folio);
			mp = folio->mapping == mapping ? folio_get_private(folio) : NULL;
			if (mp && mp->nvj_tid && !mp->nvj_revoked) {
				mp->nvj_revoked = true;
			} else {
				mp = NULL;
			}
			if (mp && mp->nvj_tid > tail) {
				/* Until the transaction is known. */
				mp->nvj_tid = U64_MAX;
				revoke = ADD(&tx->revokes);
				*revoke = (struct revoke){.block = mp->index, .folio = folio};
				folio_get(folio);
			}
			folio_unlock(folio);
		}
		folio_batch_release(&batch);
	}
}

int jfsnvj_update_blocks(struct inode *ipbmap, int free, s64 blkno, s64 nblocks,
			 struct tblock *tblk)
{
	struct bmap *bmap = JFS_SBI(ipbmap->i_sb)->bmap;
	s64 block = blkno, left = nblocks;

	if (!jfsnvj_is_logging(tblk))
		return 0;
	if (blkno < 0 || nblocks < 0 || blkno + nblocks > bmap->db_mapsize) {
		jfs_error(ipbmap->i_sb, "blocks are outside the map\n");
		return -EIO;
	}
	while (left) {
		u32 first = block & (BPERDMAP - 1), count = min_t(s64, left, BPERDMAP - first);
		int map = find_map(tblk->nvj, ipbmap, BLKTODMAP(block, bmap->db_l2nbperpage),
				   offsetof(struct dmap, pmap));

		if (map < 0) {
			jfs_error(ipbmap->i_sb, "a page of the block map cannot be read\n");
			return map;
		}
		add_change(tblk->nvj, map, first, count, free);
		block += count;
		left -= count;
	}
	if (free)
		revoke_range(tblk->nvj, ipbmap->i_sb, blkno, nblocks);
	return 0;
}

/*
 * The page of the inode map, and in it an extent of inodes. The caller holds a lock of
 * the map.
 *
 * The map grows in diNewIAG, which holds the map's rdwrlock for writing and the map's
 * commit_mutex. So a thread that looks for a page needs one of the two. The order is:
 *
 *	commit_mutex of other inodes, rdwrlock of the map, commit_mutex of the map
 *
 * jfsnvj_update_inode takes the rdwrlock. Its transaction makes or removes an inode, and
 * its thread holds the commit_mutex of ordinary inodes at most: a transaction that
 * commits the map's own inode makes and removes none.
 *
 * diNewIAG takes the last two, and never the commit_mutex of another inode. It may wait
 * for room in the journal or for a commit. Neither waits for a thread that waits here,
 * because that one has no open handle yet. It may also wait for a free transaction or
 * a free tlock, which threads that wait here have. In stock JFS they have them, too:
 * its commit threads take the rdwrlock (diUpdatePMap).
 *
 * diFree takes the map's commit_mutex alone, to free an extent of inodes. It must not
 * take the rdwrlock after it: diNewIAG, of another allocation group, may have that lock
 * and wait for the commit_mutex. While diFree waits for that mutex, it has the page of
 * its extent locked. Nobody who has the mutex needs that page: diNewIAG adds another
 * one, and a second diFree is of another allocation group, which has other pages.
 *
 * All these mutexes are of one class for lockdep. That of the map has a subclass of its
 * own (edits).
 */
static int find_iag(struct jfsnvj_tx *tx, struct inode *ipimap, u32 iagno, u32 extent)
{
	struct super_block *sb = ipimap->i_sb;
	int map = find_map(tx, ipimap, IAGTOLBLK(iagno, JFS_SBI(sb)->l2nbperpage),
			   offsetof(struct iag, pmap));

	if (map < 0)
		jfs_error(sb, "a page of the inode map cannot be read\n");
	else if (extent < EXTSPERIAG)
		__set_bit(extent, tx->maps.at[map].extents);
	return map;
}

int jfsnvj_update_inode(struct inode *ipimap, unsigned long inum, bool is_free, struct tblock *tblk)
{
	u32 bit = inum & (INOSPERIAG - 1);
	int map;

	if (!jfsnvj_is_logging(tblk))
		return 0;
	IREAD_LOCK(ipimap, RDWRLOCK_IMAP);
	map = find_iag(tblk->nvj, ipimap, INOTOIAG(inum), bit >> L2INOSPEREXT);
	IREAD_UNLOCK(ipimap);
	if (map < 0)
		return map;
	add_change(tblk->nvj, map, bit, 1, is_free);
	return 0;
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
		find_iag(tx, JFS_SBI(tblk->sb)->ipimap, le32_to_cpu(lrd->log.noredoinoext.iagnum),
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
				mask |= apply(map, &tx->changes.at[i]);
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
		(void)apply(&tx->maps.at[tx->changes.at[i].map], &tx->changes.at[i]);
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
