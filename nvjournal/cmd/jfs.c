/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk whose JFS is journaled by jfsnvj. Its superblocks carry a mark, as long as it
 * needs recovery from its region, and that region's UUID. JFS and fsck.jfs refuse the
 * disk: the mark changes the version. Recovery also makes the working maps anew.
 */
#include <stdlib.h>
#include <string.h>

#include "../jfs/jfs.h"
#include "nvj.h"

int jfs_look(struct fs_disk *fs, struct nvju_disk *disk)
{
	_Alignas(4096) uint8_t block[NVJ_BLOCK_BYTES];
	struct nvj_jfs_super super;

	memset(fs, 0, sizeof(*fs));
	if (nvju_disk_read(disk, NVJ_JFS_SUPER, block)) {
		complain("%s", nvju_error());
		return -1;
	}
	fs->found = fs->jfs = nvj_jfs_read_super(block, &super);
	if (!fs->found)
		return 0;
	fs->marked = super.marked;
	memcpy(fs->uuid, super.uuid, 16);
	memcpy(fs->journal_uuid, super.journal_uuid, 16);
	if (super.marked)
		fs_read_mark(fs, disk, super.mark_block, super.blocks);
	return 0;
}

static int read_block(void *context, uint64_t block, void *image)
{
	return nvju_disk_read(context, block, image);
}

static int write_block(void *context, uint64_t block, const void *image)
{
	return fs_write_block(context, block, image, false);
}

static void *allocate(void *context, size_t bytes)
{
	void *memory = NULL;

	(void)context;
	/* Blocks begin at a multiple of their size, for direct I/O. */
	if (posix_memalign(&memory, NVJ_BLOCK_BYTES, bytes))
		return NULL;
	return memset(memory, 0, bytes);
}

static void release(void *context, void *memory, size_t bytes)
{
	(void)context;
	(void)bytes;
	free(memory);
}

static int unmark(struct nvju_disk *disk, uint64_t number)
{
	_Alignas(4096) uint8_t block[NVJ_BLOCK_BYTES];
	struct nvj_jfs_super super;
	int error = nvju_disk_read(disk, number, block);

	if (error)
		return error;
	/* A copy that is damaged is not needed. */
	if (!nvj_jfs_read_super(block, &super))
		return 0;
	nvj_jfs_unmark(block);
	/* The copy never says that it is mounted; an error that JFS found stays. */
	if (number == NVJ_JFS_SUPER && super.state != NVJ_JFS_DIRTY)
		nvj_jfs_set_state(block, NVJ_JFS_CLEAN);
	return fs_write_block(disk, number, block, true);
}

int jfs_unmark(const char *target, struct nvju_disk *disk, bool *unmarked)
{
	const struct nvj_jfs_disk blocks = {
		.context = disk,
		.read = read_block,
		.write = write_block,
		.allocate = allocate,
		.release = release,
	};
	struct nvju_platform platform;
	int error = nvj_jfs_rebuild(&blocks);

	/* The maps are persistent before the mark goes. */
	nvju_platform_init(&platform, disk);
	if (!error)
		error = platform.platform.flush(platform.platform.context);
	if (error) {
		complain("%s has all that was committed, but its maps cannot be made anew: %s; it "
			 "stays marked",
			 target, error == NVJ_JFS_EUCLEAN ? "they are damaged" : nvju_error());
		return -1;
	}
	if (unmark(disk, NVJ_JFS_SUPER) || unmark(disk, NVJ_JFS_SUPER_COPY)) {
		complain("%s has all that was committed, but its superblock cannot be written: %s; "
			 "run this again when it works",
			 target, nvju_error());
		return -1;
	}
	*unmarked = true;
	return 0;
}
