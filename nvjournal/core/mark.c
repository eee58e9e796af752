/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The mark of a tail on the disk. It distinguishes an older copy of a region
 * from the region itself, which has the same UUID.
 */
#include "format.h"

static uint32_t crc_of(const struct nvj_disk_mark *mark)
{
	struct nvj_disk_mark copy = *mark;

	copy.crc = 0;
	return nvj_crc32c(~0u, &copy, sizeof(copy));
}

void nvj_mark_make(struct nvj_disk_mark *mark, const uint8_t uuid[16], uint64_t tail_tid)
{
	*mark = (struct nvj_disk_mark){.magic = NVJ_MARK_MAGIC, .tail_tid = tail_tid};
	__builtin_memcpy(mark->uuid, uuid, sizeof(mark->uuid));
	mark->crc = crc_of(mark);
}

uint64_t nvj_mark_tail(const struct nvj_disk_mark *mark, const uint8_t uuid[16])
{
	if (mark->magic != NVJ_MARK_MAGIC || mark->crc != crc_of(mark) ||
	    __builtin_memcmp(mark->uuid, uuid, sizeof(mark->uuid)))
		return 0;
	return mark->tail_tid;
}

int nvj_read_tail(const struct nvj_region *region, uint64_t *tid)
{
	struct nvj_disk_super super;
	struct nvj_geometry geometry;
	unsigned damaged;
	bool layout;
	int error = nvj_super_read(region, &super, &geometry, &damaged, &layout);

	if (error)
		return error;
	return nvj_tail_read(&geometry, tid, &damaged) ? 0 : NVJ_EUCLEAN;
}
