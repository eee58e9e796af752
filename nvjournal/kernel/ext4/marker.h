/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mark of a disk whose journal is in a region. adapt puts this in the place
 * of ext4.h's functions for the feature needs_recovery.
 *
 * A disk that is mounted needs recovery (RECOVER), and only from its region: the
 * journal within the disk is empty, and to replay that, as ext4 and e2fsck would,
 * is to lose what is in the region. So another bit is set and cleared together
 * with RECOVER, which they do not know and therefore refuse. In the same write
 * goes the region's UUID, which is new at each format, to s_journal_uuid (else 0,
 * as the disk's journal is within it): no other region fits, and none of an earlier
 * mount.
 *
 * A copy of the region that was made during this mount has its UUID, too. So each
 * checkpoint writes the tail that it has come to (struct nvj_disk_mark) to a block of
 * the disk's own journal, which nobody else uses meanwhile, and a region whose tail is
 * behind it is refused. That block's number is in the last two reserved words of the
 * superblock, set and cleared with the mark; 0: an earlier module, which wrote none.
 */
#ifndef EXT4NVJ_MARKER_H
#define EXT4NVJ_MARKER_H

#define EXT4NVJ_FEATURE_INCOMPAT 0x40000000

/* In s_reserved: the number of a block, low word first. */
#define EXT4NVJ_MARK_WORD 92
static_assert(offsetof(struct ext4_super_block, s_reserved[EXT4NVJ_MARK_WORD]) == 0x3f4);

/* The UUID of the region's journal, and the block for the mark of its tail; ext4/load.c. */
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
