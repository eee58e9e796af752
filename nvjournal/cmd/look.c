/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a region read-only: the mapping has no write access. */
#include <errno.h>
#include <string.h>

#include "nvj.h"

/* The length of the journal according to its superblock or the copy; 0 if unknown. */
static uint64_t journal_bytes(const char *file, uint64_t offset)
{
	struct nvju_region *head;
	struct nvj_disk_super super;
	struct nvj_region any_size;
	int error;

	if (nvju_region_open(&head, file, offset, NVJ_COMMITS_OFFSET,
			     NVJU_READ_ONLY | NVJU_UNLOCKED))
		return 0;
	any_size = *nvju_region(head);
	any_size.size_bytes = UINT64_MAX;
	error = nvj_read_super(&any_size, &super);
	nvju_region_close(head);
	return error ? 0
		     : (super.size_bytes + NVJ_BLOCK_BYTES - 1) & ~(uint64_t)(NVJ_BLOCK_BYTES - 1);
}

int open_journal_region(struct nvju_region **region, const char *file, uint64_t offset,
			unsigned flags)
{
	uint64_t bytes = journal_bytes(file, offset);
	int error = nvju_region_open(region, file, offset, bytes, flags);

	/* The device needs another multiple, or the journal is truncated: a later check
	 * finds that. */
	if (bytes && error == -EINVAL)
		error = nvju_region_open(region, file, offset, 0, flags);
	return error;
}

int look_at(struct look *look, const char *file, uint64_t offset, bool even_if_in_use)
{
	int error;

	memset(look, 0, sizeof(*look));
	error = open_journal_region(&look->region, file, offset, NVJU_READ_ONLY);
	if (error == -EBUSY && even_if_in_use) {
		look->in_use = true;
		error = open_journal_region(&look->region, file, offset,
					    NVJU_READ_ONLY | NVJU_UNLOCKED);
	}
	if (error) {
		complain("%s", nvju_error());
		return EXIT_UNUSABLE;
	}
	nvju_platform_init(&look->platform, NULL);
	look->super_error = nvj_read_super(nvju_region(look->region), &look->super);
	return 0;
}

int look_at_journal(struct look *look, const char *file, uint64_t offset, bool even_if_in_use)
{
	int result = look_at(look, file, offset, even_if_in_use);

	if (result || !look->super_error)
		return result;
	complain_of_journal(file, offset, look->super_error);
	look_away(look);
	return EXIT_UNUSABLE;
}

void look_away(struct look *look)
{
	nvju_region_close(look->region);
}
