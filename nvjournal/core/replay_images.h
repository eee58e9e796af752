/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The blocks that replay is changing: a bounded number of images, which are read
 * from home once and written home together, several at once.
 */
#ifndef NVJ_REPLAY_IMAGES_H
#define NVJ_REPLAY_IMAGES_H

#include "../include/nvjournal.h"

/* Images of all partitions that are replayed at the same time: 16 MiB. */
#define NVJ_REPLAY_IMAGES 4096u
#define NVJ_REPLAY_IMAGES_LEAST 64u

struct nvj_images;

/*
 * At most count images, for writes on this queue; fewer, if there is not the
 * memory for them. NULL: not even for a single one.
 */
struct nvj_images *nvj_images_new(const struct nvj_platform *platform, unsigned queue,
				  uint32_t count);
void nvj_images_free(struct nvj_images *s);

/*
 * The block's image, to change. It is read from home unless it was here, or whole:
 * the caller replaces all of it. Writes the others home if there is no more room.
 * NULL: *error is NVJ_EIO.
 */
void *nvj_images_get(struct nvj_images *s, uint64_t block, bool whole, int *error);

/* Writes all home, and forgets them. 0 or NVJ_EIO. Does not flush the disk. */
int nvj_images_write(struct nvj_images *s);

/* How many were written in all. */
uint64_t nvj_images_written(const struct nvj_images *s);

#endif
