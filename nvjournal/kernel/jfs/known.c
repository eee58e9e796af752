// SPDX-License-Identifier: GPL-2.0
/*
 * What of a metapage is known to be on the disk or in the journal, so that a record
 * needs only the other lines.
 *
 * Pages of files, directories and inodes. The engine keeps an image of a page that the
 * journal has and the disk may not have, and compares with it. Of other pages the disk
 * has the content that was read. So that content is copied when a transaction locks the
 * page, and the first record is compared with the copy. A page is known:
 *
 * 	when it is read from the disk,
 * 	and when it is logged: before the engine drops its image, the page is at home.
 *
 * It is not known, and the first record is the whole page:
 *
 * 	when it is new: the disk has something else,
 * 	when a transaction locks it, until it is logged: if JFS gives up the transaction,
 * 	its changes are in memory, and not in the journal,
 * 	when JFS writes it without the journal.
 *
 * JFS changes a table of a directory's entries, and a page of an extent tree, before it
 * locks the page. So lines that JFS's lock names, and all lines of a page of an extent
 * tree, are logged, also if the copy has the same.
 *
 * Pages of the inode map. JFS enters a new extent of inodes there, and removes one, before
 * the transaction is logged. The record of another transaction must not show that: if
 * only that one was committed before a crash, the blocks of a removed extent would be lost.
 * So nvj_iag has the page without changes that are not logged, and is what the engine
 * gets. It is a copy that is taken when the page is read, before JFS changes it. Most
 * transactions change one bit of the persistent map. Where an extent is changes seldom,
 * and is logged only then.
 */
#include "journal.h"
#include "jfs_imap.h"

/* Copies of pages that transactions have locked, of all mounts. */
#define MOST_COPIES 1024
static atomic_t copies = ATOMIC_INIT(0);

static void drop_copy(struct metapage *mp)
{
	if (!mp->nvj_before)
		return;
	kfree(mp->nvj_before);
	mp->nvj_before = NULL;
	atomic_dec(&copies);
}

void jfsnvj_locks_page(struct metapage *mp)
{
	struct jfsnvj *j = jfsnvj_of(mp->sb);
	bool known = mp->nvj_known;

	drop_copy(mp);
	mp->nvj_known = false;
	if (!known || !j || !j->nvj || mp->nvj_revoked || jfsnvj_is_map(mp))
		return;
	/* The engine has an image. */
	if (mp->nvj_tid > nvj_tail(j->nvj))
		return;
	if (atomic_inc_return(&copies) <= MOST_COPIES)
		mp->nvj_before =
			kmemdup(mp->data, NVJ_BLOCK_BYTES, GFP_NOFS | __GFP_NORETRY | __GFP_NOWARN);
	if (!mp->nvj_before)
		atomic_dec(&copies);
}

void jfsnvj_makes_page(struct metapage *mp)
{
	drop_copy(mp);
	mp->nvj_known = false;
}

void jfsnvj_releases_page(struct metapage *mp)
{
	if (test_bit(META_dirty, &mp->flag) && !mp->nohomeok && !mp->nvj_tid)
		mp->nvj_known = false;
}

const void *jfsnvj_before(struct metapage *mp, u64 changed)
{
	u8 *before = mp->nvj_before;
	const u8 *data = mp->data;

	for (; before && changed; changed &= changed - 1) {
		u32 at = __ffs64(changed) * NVJ_LINE_BYTES;

		before[at] = ~data[at];
	}
	return before;
}

void jfsnvj_logged(struct metapage *mp)
{
	drop_copy(mp);
	mp->nvj_known = true;
}

void jfsnvj_forget(struct metapage *mp)
{
	drop_copy(mp);
	kfree(mp->nvj_iag);
	mp->nvj_iag = NULL;
}

static u64 line_of(u32 byte)
{
	return BIT_ULL(byte / NVJ_LINE_BYTES);
}

void jfsnvj_reads_iag(struct metapage *mp)
{
	if (!mp->nvj_iag)
		mp->nvj_iag = kmemdup(mp->data, sizeof(struct iag), GFP_NOFS | __GFP_NOFAIL);
}

u64 jfsnvj_iag_lines(struct metapage *mp, const unsigned long *extents)
{
	const struct iag *iag = mp->data;
	struct iag *logged = mp->nvj_iag;
	unsigned int extent;
	u64 lines = 0;

	memcpy(logged->pmap, iag->pmap, sizeof(iag->pmap));
	if (logged->agstart != iag->agstart || logged->iagnum != iag->iagnum) {
		logged->agstart = iag->agstart;
		logged->iagnum = iag->iagnum;
		lines |= line_of(0);
	}
	for_each_set_bit(extent, extents, EXTSPERIAG)
	{
		pxd_t now = iag->inoext[extent];

		/*
		 * A freeze writes the page itself to the disk, also with an extent whose
		 * transaction JFS gave up. So a removal is logged in any case.
		 */
		if (!memcmp(&logged->inoext[extent], &now, sizeof(now)) && addressPXD(&now))
			continue;
		logged->inoext[extent] = now;
		lines |= line_of(offsetof(struct iag, inoext) + extent * sizeof(now));
	}
	return lines;
}
