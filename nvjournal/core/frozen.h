/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Versions of a block that a checkpoint may still need, while a later transaction
 * changes the block. The caller holds the block's lock. image.c frees them.
 */
#ifndef NVJ_FROZEN_H
#define NVJ_FROZEN_H

#include "journal.h"

/*
 * The image is a version of an earlier transaction, and is not at home yet. A
 * checkpoint may need it. So from now on, before a line of the image changes,
 * nvj_keep_lines puts the old line into a spare image. False: there is no spare
 * image, which nvj_access should have provided.
 */
static inline bool nvj_freeze(struct nvj *j, struct nvj_block *b)
{
	struct nvj_image *old = nvj_spare_take(b);

	if (NVJ_UNLIKELY(!old))
		return false;
	if (b->promised)
		b->promised--;
	old->tid = b->image->tid;
	old->revoked_by = 0;
	old->lines = 0;
	old->next = b->frozen;
	b->frozen = old;
	b->image->tid = 0;
	nvj_store(&b->freezes, b->freezes + 1);
	nvj_frozen_trim(j, b);
	return true;
}

/* Copies lines that are about to change to the newest frozen version. */
static inline void nvj_keep_lines(struct nvj_block *b, uint64_t mask)
{
	struct nvj_image *old = b->frozen;
	uint64_t left = mask & ~old->lines;

	old->lines |= mask;
	while (left) {
		unsigned count, first = nvj_take_run(&left, &count);
		size_t at = first * NVJ_LINE_BYTES;

		__builtin_memcpy(old->bytes + at, b->image->bytes + at, count * NVJ_LINE_BYTES);
	}
}

#endif
