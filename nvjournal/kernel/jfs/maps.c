// SPDX-License-Identifier: GPL-2.0
/*
 * What a JFS transaction changes in the persistent maps, of blocks and of inodes.
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
 */
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
#include <linux/folio_batch.h>
#else
#include <linux/pagevec.h>
#endif

#include "transaction.h"
#include "jfs_dmap.h"
#include "jfs_xtree.h"

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
u64 jfsnvj_apply(const struct map *map, const struct change *change)
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
int jfsnvj_find_iag(struct jfsnvj_tx *tx, struct inode *ipimap, u32 iagno, u32 extent)
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
	map = jfsnvj_find_iag(tblk->nvj, ipimap, INOTOIAG(inum), bit >> L2INOSPEREXT);
	IREAD_UNLOCK(ipimap);
	if (map < 0)
		return map;
	add_change(tblk->nvj, map, bit, 1, is_free);
	return 0;
}
