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
 * as the disk's journal is within it): no other region fits, and no older copy.
 */
#ifndef EXT4NVJ_MARKER_H
#define EXT4NVJ_MARKER_H

#define EXT4NVJ_FEATURE_INCOMPAT 0x40000000

/* The UUID of the region's journal; ext4/load.c. */
const u8 *ext4nvj_uuid(struct super_block *sb);

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
