// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that fails. Recovery copies memory in such a way that a machine check
 * ends the copy, and not the kernel. For each device with memory, the kernel
 * has a list of bad blocks, to which scrubbing and errors add.
 */
#include <linux/badblocks.h>
#include <linux/blkdev.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "internal.h"

/*
 * Returns how many bytes were not copied. Not inlined: a test lets it fail
 * (test/faults).
 */
noinline unsigned long nvjk_copy_mc(void *to, const void *from, size_t bytes)
{
	return copy_mc_to_kernel(to, from, bytes);
}

int nvjk_media_read(void *to, const void *from, size_t bytes)
{
	return nvjk_copy_mc(to, from, bytes) ? NVJ_EIO : 0;
}

/* What badblocks_check counts sectors with. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
typedef int nvjk_sectors;
#else
typedef sector_t nvjk_sectors;
#endif

bool nvjk_media_is_bad(struct block_device *bdev, u64 offset, u64 bytes, u64 *bad)
{
	struct badblocks *list = bdev->bd_disk->bb;
	sector_t at = get_start_sect(bdev) + (offset >> SECTOR_SHIFT), begin = at;
	u64 left = bytes >> SECTOR_SHIFT;

	if (!list || !READ_ONCE(list->count))
		return false;
	while (left) {
		nvjk_sectors sectors = min_t(u64, left, INT_MAX), count;
		sector_t first;

		if (badblocks_check(list, at, sectors, &first, &count)) {
			*bad = offset + ((u64)(max(first, begin) - begin) << SECTOR_SHIFT);
			return true;
		}
		at += sectors;
		left -= sectors;
	}
	return false;
}
