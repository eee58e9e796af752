/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mark of a disk whose journal is in a region. adapt replaces ext4.h's
 * functions for the feature needs_recovery with this file.
 *
 * A mounted disk needs recovery (RECOVER), and only from its region. The
 * journal on the disk is empty. If ext4 or e2fsck replayed that journal, the
 * contents of the region would be lost. So another feature bit is set and
 * cleared together with RECOVER. ext4 and e2fsck do not know this bit, and
 * refuse the disk. The same write stores the region's UUID in s_journal_uuid,
 * which is otherwise 0 because the disk's journal is internal. The UUID is new
 * at each format. So no other region matches, and no region of an earlier
 * mount.
 *
 * A copy of the region that was made during this mount has the same UUID. So
 * each checkpoint writes its tail (struct nvj_disk_mark) to a block of the
 * disk's own journal, which is not used otherwise. A region with an older tail
 * is refused. The number of that block is in the last two reserved words of the
 * superblock, and is set and cleared with the mark. 0: an earlier version of
 * the module, which wrote none.
 */
#ifndef EXT4NVJ_MARKER_H
#define EXT4NVJ_MARKER_H

#define EXT4NVJ_FEATURE_INCOMPAT 0x40000000

/*
 * In s_reserved: the number of a block, low word first. Later kernels have fewer
 * reserved words, and the last two are the same.
 */
#define EXT4NVJ_MARK_WORD (ARRAY_SIZE(((struct ext4_super_block *)NULL)->s_reserved) - 2)
static_assert(offsetof(struct ext4_super_block, s_reserved[EXT4NVJ_MARK_WORD]) == 0x3f4);

/*
 * The UUID of the region's journal, and the block for the mark of its tail; see
 * ext4/load.c.
 */
const u8 *ext4nvj_uuid(struct super_block *sb);
u64 ext4nvj_mark_block(struct super_block *sb);

static inline u64 ext4nvj_get_mark_block(const struct ext4_super_block *es)
{
	return le32_to_cpu(es->s_reserved[EXT4NVJ_MARK_WORD]) |
	       (u64)le32_to_cpu(es->s_reserved[EXT4NVJ_MARK_WORD + 1]) << 32;
}

static inline void ext4nvj_put_mark_block(struct ext4_super_block *es, u64 block)
{
	es->s_reserved[EXT4NVJ_MARK_WORD] = cpu_to_le32(lower_32_bits(block));
	es->s_reserved[EXT4NVJ_MARK_WORD + 1] = cpu_to_le32(upper_32_bits(block));
}

static inline bool ext4nvj_has_marker(struct super_block *sb)
{
	return EXT4_SB(sb)->s_es->s_feature_incompat & cpu_to_le32(EXT4NVJ_FEATURE_INCOMPAT);
}

static inline void ext4nvj_unmark(struct ext4_super_block *es)
{
	if (!(es->s_feature_incompat & cpu_to_le32(EXT4NVJ_FEATURE_INCOMPAT)))
		return;
	es->s_feature_incompat &= ~cpu_to_le32(EXT4NVJ_FEATURE_INCOMPAT);
	memset(es->s_journal_uuid, 0, sizeof(es->s_journal_uuid));
	ext4nvj_put_mark_block(es, 0);
}

static inline bool ext4_has_feature_journal_needs_recovery(struct super_block *sb)
{
	return EXT4_SB(sb)->s_es->s_feature_incompat &
	       cpu_to_le32(EXT4_FEATURE_INCOMPAT_RECOVER | EXT4NVJ_FEATURE_INCOMPAT);
}

static inline void ext4_set_feature_journal_needs_recovery(struct super_block *sb)
{
	struct ext4_super_block *es = EXT4_SB(sb)->s_es;

	memcpy(es->s_journal_uuid, ext4nvj_uuid(sb), sizeof(es->s_journal_uuid));
	ext4nvj_put_mark_block(es, ext4nvj_mark_block(sb));
	es->s_feature_incompat |=
		cpu_to_le32(EXT4_FEATURE_INCOMPAT_RECOVER | EXT4NVJ_FEATURE_INCOMPAT);
}

static inline void ext4_clear_feature_journal_needs_recovery(struct super_block *sb)
{
	struct ext4_super_block *es = EXT4_SB(sb)->s_es;

	ext4nvj_unmark(es);
	es->s_feature_incompat &= ~cpu_to_le32(EXT4_FEATURE_INCOMPAT_RECOVER);
}

#endif
