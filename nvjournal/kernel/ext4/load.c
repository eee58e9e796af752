// SPDX-License-Identifier: GPL-2.0
/*
 * Mount. The order of the steps ensures that nothing is written before all
 * checks pass:
 *
 * 	1. The disk and its options are checked (check.c).
 * 	2. The region is opened (mount/region.c), and its superblock is read. It must be a
 * 	   journal of this disk, or of no disk. If the disk needs recovery, the region
 * 	   must have the UUID in the disk's superblock, and its tail must not be before
 * 	   the tail that the last checkpoint wrote to the disk. If the disk does not
 * 	   need recovery, the region must be clean: it must contain nothing for another
 * 	   disk.
 * 	3. If the disk needs recovery, committed blocks are written home, and the mark
 * 	   is removed from the disk.
 * 	4. The region is formatted again, with a new UUID, and opened. So an older copy
 * 	   of a region can never be taken for it.
 *
 * Then ext4 writes mark and UUID to the disk in one write (marker.h), before
 * its first handle.
 */
#include <linux/uuid.h>

#include "fs/ext4/ext4.h"
#include "fs/ext4/ext4_jbd2.h"
#include "jbd2/journal.h"

const u8 *ext4nvj_uuid(struct super_block *sb)
{
	return EXT4_SB(sb)->s_nvj->uuid;
}

u64 ext4nvj_mark_block(struct super_block *sb)
{
	return EXT4_SB(sb)->s_nvj->mark_block;
}

/*
 * Says whether the disk's journal is used. Without a journal the disk can only
 * be mounted read-only, with noload, when everything is on the disk.
 */
bool ext4nvj_wants_journal(struct super_block *sb)
{
	return !test_opt(sb, NOLOAD) || !sb_rdonly(sb) ||
	       ext4_has_feature_journal_needs_recovery(sb) || !ext4_has_feature_journal(sb);
}

static int check_region(struct super_block *sb, const struct nvjk_mount *nvj,
			const struct nvj_disk_super *super)
{
	const struct ext4_super_block *es = EXT4_SB(sb)->s_es;
	const struct nvjk_disk_identity disk = {
		.uuid = es->s_uuid,
		.marked = ext4nvj_has_marker(sb),
		.journal_uuid = es->s_journal_uuid,
		.mark_block = ext4nvj_get_mark_block(es),
	};

	return nvjk_mount_check_region(sb, nvj, super, &disk);
}

/*
 * ext4 writes errors to the superblock through the journal, or without it when the journal is
 * aborted. Recovery may have replaced the latter by an older superblock.
 */
static void keep_errors(struct ext4_super_block *es, const struct ext4_super_block *before)
{
	if (le32_to_cpu(before->s_error_count) <= le32_to_cpu(es->s_error_count))
		return;
	memcpy((u8 *)es + EXT4_S_ERR_START, (const u8 *)before + EXT4_S_ERR_START, EXT4_S_ERR_LEN);
	es->s_first_error_time_hi = before->s_first_error_time_hi;
	es->s_last_error_time_hi = before->s_last_error_time_hi;
	es->s_first_error_errcode = before->s_first_error_errcode;
	es->s_last_error_errcode = before->s_last_error_errcode;
}

/*
 * An umount writes s_mount_state, which was read before recovery. With an error in it, ext4 would
 * not delete orphans.
 */
void ext4nvj_keep_error_state(struct super_block *sb)
{
	struct ext4_sb_info *sbi = EXT4_SB(sb);

	if (sbi->s_mount_state & EXT4_ERROR_FS ||
	    !(sbi->s_es->s_state & cpu_to_le16(EXT4_ERROR_FS)))
		return;
	sbi->s_mount_state |= EXT4_ERROR_FS;
	ext4_msg(sb, KERN_WARNING,
		 "warning: mounting fs with errors, running e2fsck is recommended");
}

/*
 * Writes the region's committed blocks home, and removes the mark from the
 * disk.
 */
static int recover(struct super_block *sb, struct ext4_super_block *es, struct nvjk_mount *nvj)
{
	ext4_fsblk_t blocks = ext4_blocks_count(es);
	struct nvj_report *report;
	struct nvjk_disk *disk;
	struct ext4_super_block *before;
	int err = EXT4_SB(sb)->s_nvj_cache_error;

	if (err) {
		nvjk_say_cache_in_use(sb, err);
		return err;
	}
	before = kmemdup(es, sizeof(*es), GFP_KERNEL);
	report = kzalloc(sizeof(*report), GFP_KERNEL);
	if (!before || !report) {
		err = -ENOMEM;
		goto out;
	}
	if (sb_rdonly(sb))
		ext4_msg(sb, KERN_INFO,
			 "the disk is written for its recovery, though mounted read-only");
	err = nvjk_disk_open(&disk, sb->s_bdev, NULL);
	if (err)
		goto out;
	err = nvj_recover_with(nvjk_region(nvj->region), nvjk_disk_platform(disk), nvjk_run,
			       report);
	nvjk_disk_close(disk);
	nvjk_say_findings(sb, report);
	if (err) {
		ext4_msg(sb, KERN_ERR, "the disk cannot be recovered from %s: %s; %s",
			 nvj->options.journal_path, nvj_strerror(err),
			 err != NVJ_EUCLEAN ? "mount it again, it is safe to repeat"
			 : report->blocks   ? "not all was written; see nvj check"
					    : "nothing was written; see nvj check");
		goto out;
	}
	keep_errors(es, before);
	es->s_state |= cpu_to_le16(EXT4_SB(sb)->s_mount_state & EXT4_ERROR_FS);
	ext4_msg(sb, KERN_INFO, "recovered: %llu blocks of %llu transactions from %s",
		 report->blocks, report->transactions, nvj->options.journal_path);

	ext4_clear_feature_journal_needs_recovery(sb);
	err = ext4_commit_super(sb);
	if (!err)
		err = sync_blockdev(sb->s_bdev);
	if (!err)
		err = blkdev_issue_flush(sb->s_bdev);
	if (err == -EOPNOTSUPP)
		err = 0;
	if (err) {
		ext4_msg(sb, KERN_ERR,
			 "the disk was recovered, but its superblock cannot be written");
		goto out;
	}
	if (ext4_blocks_count(es) != blocks) {
		/* What was read from the disk before is for its former size. */
		ext4_msg(sb, KERN_ERR,
			 "a resize was recovered, and the disk has %llu blocks now: mount it again",
			 ext4_blocks_count(es));
		err = -EAGAIN;
	}
out:
	kfree(report);
	kfree(before);
	return err;
}

static int open_journal(struct super_block *sb, struct nvjk_mount *nvj)
{
	struct nvjk_journal_options options = {
		.whole_blocks = nvj->options.whole_blocks,
		.one_lock = nvj->options.one_lock,
		.log_at_handle = nvj->options.log_at_handle,
	};
	struct inode *inner;
	journal_t *journal;
	int err;

	inner = ext4nvj_inner_journal(sb);
	if (IS_ERR(inner))
		return PTR_ERR(inner);
	err = ext4nvj_inner_block(inner, &nvj->mark_block);
	if (err) {
		iput(inner);
		return err;
	}
	memcpy(options.disk_uuid, EXT4_SB(sb)->s_es->s_uuid, UUID_SIZE);
	memcpy(options.uuid, nvj->uuid, UUID_SIZE);
	options.mark_block = nvj->mark_block;
	/* Stores to file data that DAX maps are not counted as writes. */
	options.always_flush = EXT4_SB(sb)->s_daxdev;
	options.inner = inner;
	options.inner_blocks = inner->i_size >> sb->s_blocksize_bits;
	journal = nvjk_journal_open(sb, nvj->region, &options);
	if (IS_ERR(journal)) {
		iput(inner);
		ext4_msg(sb, KERN_ERR, "the journal on %s cannot be opened: %s",
			 nvj->options.journal_path,
			 PTR_ERR(journal) == -EFBIG ? "the region is too small for ext4; choose a "
						      "larger journal_size= or fewer partitions"
						    : nvj_strerror(PTR_ERR(journal)));
		return PTR_ERR(journal);
	}
	ext4_init_journal_params(sb, journal);
	EXT4_SB(sb)->s_journal = journal;
	if (!test_opt(sb, BARRIER))
		ext4_msg(sb, KERN_INFO, "barriers disabled");
	return 0;
}

static void free_nvj(struct super_block *sb)
{
	struct nvjk_mount *nvj = EXT4_SB(sb)->s_nvj;

	EXT4_SB(sb)->s_nvj = NULL;
	nvjk_mount_free(nvj);
}

/*
 * ext4 calls this to open its journal. On success s_journal and s_nvj are set.
 * options are those of the mount; the path is moved out of them.
 */
int ext4nvj_load_journal(struct super_block *sb, struct ext4_super_block *es,
			 struct nvjk_mount_options *options)
{
	struct nvj_disk_super super;
	struct nvjk_mount *nvj;
	int err;

	err = ext4nvj_check_disk(sb, options);
	if (err)
		return err;
	nvj = kzalloc(sizeof(*nvj), GFP_KERNEL);
	if (!nvj)
		return -ENOMEM;
	nvj->options = *options;
	options->journal_path = NULL;
	EXT4_SB(sb)->s_nvj = nvj;

	err = nvjk_mount_open_region(sb, nvj, &super);
	if (!err)
		err = check_region(sb, nvj, &super);
	if (err)
		goto fail;
	if (!nvj->options.partitions)
		nvj->options.partitions = super.partitions;
	if (!nvj->options.placement)
		nvj->options.placement = super.placement;

	if (ext4nvj_has_marker(sb)) {
		err = recover(sb, es, nvj);
		if (err)
			goto fail;
	}
	err = nvjk_mount_format(sb, nvj, es->s_uuid);
	if (!err)
		err = open_journal(sb, nvj);
	if (err == -EFBIG && nvj->options.partitions != super.partitions) {
		/*
		 * That many partitions do not fit. The next mount must not use
		 * this number from the region.
		 */
		nvj->options.partitions = super.partitions;
		nvjk_mount_format(sb, nvj, es->s_uuid);
	}
	if (err)
		goto fail;

	/*
	 * Handles of a read-only mount delete orphans. ext4 removes the mark
	 * after that, because the superblock says that there are orphans.
	 */
	if (sb_rdonly(sb) && !bdev_read_only(sb->s_bdev) &&
	    (es->s_last_orphan || ext4_has_feature_orphan_present(sb))) {
		ext4_set_feature_journal_needs_recovery(sb);
		err = ext4_commit_super(sb);
		if (err) {
			ext4nvj_destroy_journal(sb);
			return err;
		}
	}
	return 0;
fail:
	free_nvj(sb);
	return err;
}

/*
 * Replaces jbd2_journal_destroy, and also closes the region. If a mount has
 * failed halfway, everything is at home now, and so the mark is removed from
 * the disk. At umount ext4 removes it.
 */
int ext4nvj_destroy_journal(struct super_block *sb)
{
	bool aborted = is_journal_aborted(EXT4_SB(sb)->s_journal);
	int err = jbd2_journal_destroy(EXT4_SB(sb)->s_journal);

	EXT4_SB(sb)->s_journal = NULL;
	if (!err && !aborted && !(sb->s_flags & SB_BORN) && ext4nvj_has_marker(sb)) {
		ext4_clear_feature_journal_needs_recovery(sb);
		ext4_commit_super(sb);
	}
	free_nvj(sb);
	return err;
}
