// SPDX-License-Identifier: GPL-2.0
/*
 * Checks at mount. Each refusal logs the reason and what to do. Nothing is
 * written here.
 */
#include "fs/ext4/ext4.h"
#include "../include/nvjournal.h"

/* The first block of a journal, as jbd2 stores it on the disk; big-endian. */
struct inner_journal {
	__be32 magic;
	__be32 blocktype;
	__be32 unused[5];
	__be32 start; /* of the log, a block; 0: it is empty */
	__be32 error; /* that it was aborted with */
};

#define INNER_MAGIC 0xc03b3998u

/*
 * Checks whether this disk, mounted with these options, can have its journal in
 * a region.
 */
int ext4nvj_check_disk(struct super_block *sb, const struct nvjk_mount_options *options)
{
	const struct ext4_super_block *es = EXT4_SB(sb)->s_es;

	if (!ext4_has_feature_journal(sb)) {
		ext4_msg(sb, KERN_ERR,
			 "the disk is made without a journal: give it one by tune2fs -O "
			 "has_journal (it stays empty, and others keep off the disk by it)");
		return -EINVAL;
	}
	if (!es->s_journal_inum || es->s_journal_dev) {
		ext4_msg(sb, KERN_ERR,
			 "the disk's own journal is on another device: give it an inner one by "
			 "tune2fs -O ^has_journal, then -O has_journal");
		return -EINVAL;
	}
	if (sb->s_blocksize != NVJ_BLOCK_BYTES) {
		ext4_msg(sb, KERN_ERR,
			 "the disk has blocks of %lu bytes, the journal of %u: make it with mke2fs "
			 "-b %u",
			 sb->s_blocksize, NVJ_BLOCK_BYTES, NVJ_BLOCK_BYTES);
		return -EINVAL;
	}
	if (ext4_has_feature_fast_commit(sb)) {
		ext4_msg(sb, KERN_ERR,
			 "the disk has the feature fast_commit, which is not supported: tune2fs -O "
			 "^fast_commit");
		return -EINVAL;
	}
	if (test_opt(sb, DATA_FLAGS) == EXT4_MOUNT_JOURNAL_DATA) {
		ext4_msg(sb, KERN_ERR,
			 "data=journal is refused: not all file data is journaled; mount with "
			 "data=ordered (tune2fs -o ^journal_data, if the disk says so), maybe "
			 "with journal_data=small");
		return -EINVAL;
	}
	if (test_opt(sb, JOURNAL_ASYNC_COMMIT)) {
		ext4_msg(sb, KERN_ERR, "journal_async_commit is refused");
		return -EINVAL;
	}
	if (ext4_has_feature_journal_needs_recovery(sb) && !ext4nvj_has_marker(sb)) {
		ext4_msg(sb, KERN_ERR,
			 "the disk needs recovery from its own journal: mount it once as ext4, or "
			 "run e2fsck");
		return -EUCLEAN;
	}
	if (ext4nvj_has_marker(sb) && test_opt(sb, NOLOAD)) {
		ext4_msg(sb, KERN_ERR,
			 "the disk needs recovery from its region: noload is refused, as what is "
			 "on the disk alone is not consistent");
		return -EUCLEAN;
	}
	if (!options->journal_path) {
		ext4_msg(sb, KERN_ERR, "say where the journal is: -o journal_path=/dev/pmem0");
		return -EINVAL;
	}
	return 0;
}

/*
 * Returns the inode of the journal on the disk, with a reference, or ERR_PTR.
 * This journal must exist and be empty, because e2fsck would replay its
 * contents, possibly over ours. It is checked after recovery, because recovery
 * may change the checked blocks.
 */
struct inode *ext4nvj_inner_journal(struct super_block *sb)
{
	const struct inner_journal *inner;
	struct buffer_head *bh;
	struct inode *inode;
	int err = 0;

	inode = ext4_get_journal_inode(sb, le32_to_cpu(EXT4_SB(sb)->s_es->s_journal_inum));
	if (IS_ERR_OR_NULL(inode)) {
		ext4_msg(sb, KERN_ERR, "the disk's own journal is damaged: run e2fsck");
		return ERR_PTR(-EUCLEAN);
	}
	bh = ext4_bread(NULL, inode, 0, 0);
	if (IS_ERR_OR_NULL(bh)) {
		ext4_msg(sb, KERN_ERR, "the disk's own journal cannot be read: run e2fsck");
		iput(inode);
		return bh ? ERR_CAST(bh) : ERR_PTR(-EUCLEAN);
	}
	inner = (const struct inner_journal *)bh->b_data;
	if (be32_to_cpu(inner->magic) != INNER_MAGIC) {
		ext4_msg(sb, KERN_ERR, "the disk's own journal is damaged: run e2fsck");
		err = -EUCLEAN;
	} else if (inner->start || inner->error) {
		ext4_msg(sb, KERN_ERR,
			 "the disk's own journal is not empty: mount the disk once as ext4, or run "
			 "e2fsck");
		err = -EUCLEAN;
	}
	brelse(bh);
	if (!err)
		return inode;
	iput(inode);
	return ERR_PTR(err);
}

/*
 * The block of the disk's own journal that follows its first block. 0, or
 * -EUCLEAN, which is logged.
 */
int ext4nvj_inner_block(struct inode *inner, u64 *block)
{
	struct ext4_map_blocks map = {.m_lblk = 1, .m_len = 1};

	if (ext4_map_blocks(NULL, inner, &map, 0) != 1) {
		ext4_msg(inner->i_sb, KERN_ERR, "the disk's own journal is damaged: run e2fsck");
		return -EUCLEAN;
	}
	*block = map.m_pblk;
	return 0;
}

/* A remount may repeat our options, but not change them. */
int ext4nvj_check_remount(struct super_block *sb, struct fs_context *fc)
{
	const struct nvjk_mount_options *asked = fc->fs_private;
	const struct nvjk_mount *nvj = EXT4_SB(sb)->s_nvj;
	const char *changed;

	if (!nvj) {
		if (fc->sb_flags & SB_RDONLY)
			return 0;
		ext4_msg(sb, KERN_ERR,
			 "mounted by noload, without its journal: unmount it, and mount it with "
			 "journal_path=");
		return -EINVAL;
	}
	changed = nvjk_changed_option(&nvj->options, asked);
	if (!changed)
		return 0;
	ext4_msg(sb, KERN_ERR, "%s cannot be changed by a remount: unmount first", changed);
	return -EINVAL;
}
