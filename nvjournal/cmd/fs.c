/* SPDX-License-Identifier: Apache-2.0 */
/* The file system on a disk, as far as the journal needs it: ext4 or JFS. */
#include <inttypes.h>
#include <string.h>

#include "../user/error.h"
#include "nvj.h"

const char *fs_name(const struct fs_disk *fs)
{
	return fs->jfs ? "JFS" : "ext4";
}

int fs_look(struct fs_disk *fs, struct nvju_disk *disk)
{
	int error = ext4_look(fs, disk);

	return error || fs->found ? error : jfs_look(fs, disk);
}

int fs_unmark(const char *target, struct nvju_disk *disk, const struct fs_disk *before,
	      bool *unmarked)
{
	struct fs_disk fs;

	/* Anew: the superblock may be among what was recovered. */
	*unmarked = false;
	if (fs_look(&fs, disk))
		return -1;
	if (!fs.found || !fs.marked)
		return 0;
	return fs.jfs ? jfs_unmark(target, disk, unmarked)
		      : ext4_unmark(target, disk, before, unmarked);
}

/*
 * A file reads as zeros behind its end, so that the block is one of the disk is looked at
 * here.
 */
void fs_read_mark(struct fs_disk *fs, struct nvju_disk *disk, uint64_t number, uint64_t blocks)
{
	_Alignas(4096) uint8_t block[NVJ_BLOCK_BYTES];

	fs->mark_block = number;
	if (!number)
		return;
	if (number >= blocks || nvju_disk_read(disk, number, block))
		fs->mark_unreadable = true;
	else
		fs->tail_tid = nvj_mark_tail((const void *)block, fs->journal_uuid);
}

int fs_fits(const struct fs_disk *fs, const char *file, uint64_t offset, const char *target,
	    const struct nvj_region *region, const struct nvj_disk_super *super, bool any)
{
	char wanted[37], has[37], text[NVJU_JOURNAL_BYTES], word[NVJU_WORD_BYTES];
	uint64_t tail;

	if (!fs->found)
		return 0;
	if (!fs->marked && fs->needs_recovery) {
		complain("cannot recover %s to %s: that needs recovery from a journal of its own, "
			 "not from this one; mount it once with ext4, or run e2fsck",
			 file, target);
		return -1;
	}
	if (!fs->marked)
		return 0;
	if (memcmp(fs->journal_uuid, super->uuid, 16)) {
		complain("cannot recover %s to %s: that waits for journal %s, and this is %s, of "
			 "another mount or an older copy; give the region it was last mounted with "
			 "(with --offset, if it does not begin where the device does)",
			 file, target, uuid_text(fs->journal_uuid, wanted),
			 uuid_text(super->uuid, has));
		return -1;
	}
	if (fs->mark_unreadable && !any) {
		complain("cannot recover %s to %s: block %" PRIu64
			 ", with the mark of the journal's tail, cannot be read: it is not known "
			 "whether this region is an older copy. If it is the region that the disk "
			 "was last mounted with: nvj recover %s --target %s --any-disk",
			 file, target, fs->mark_block, nvju_journal(file, offset, text),
			 nvju_word(target, word));
		return -1;
	}
	/* Recovery reports damage. */
	if (nvj_read_tail(region, &tail) || tail >= fs->tail_tid)
		return 0;
	complain("cannot recover %s to %s: it is an older copy of the journal: it has transactions "
		 "up to %" PRIu64 " at home, and %s has them up to %" PRIu64
		 "; give the region itself",
		 file, target, tail, target, fs->tail_tid);
	return -1;
}

int fs_write_block(struct nvju_disk *disk, uint64_t number, const void *image, bool flush)
{
	struct nvju_platform platform;
	struct nvj_write write = {.block = number, .image = image};
	int error;

	nvju_platform_init(&platform, disk);
	error = platform.platform.start_write(platform.platform.context, 0, &write);
	if (error)
		return error;
	error = platform.platform.finish_write(platform.platform.context, 0)->error;
	return error || !flush ? error : platform.platform.flush(platform.platform.context);
}
