/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The blocks that replay changes: a bounded number of images. They are read
 * from home once, and several are written home at the same time.
 */
#ifndef NVJ_REPLAY_IMAGES_H
#define NVJ_REPLAY_IMAGES_H

#include "../include/nvjournal.h"

/* The images of all partitions that are replayed at the same time: 16 MiB. */
#define NVJ_REPLAY_IMAGES 4096u
#define NVJ_REPLAY_IMAGES_LEAST 64u

struct nvj_images;

/*
 * At most count images, for writes on this queue. Fewer if memory is short.
 * NULL: there is no memory for a single image.
 */
struct nvj_images *nvj_images_new(const struct nvj_platform *platform, unsigned queue,
				  uint32_t count);
void nvj_images_free(struct nvj_images *s);

/*
 * Returns the block's image, to be changed, and a number for each of its lines,
 * which is 0 at first. The image is read from home, unless it is present, or
 * whole is true: then the caller replaces all of it. NULL: *error is NVJ_EIO, or
 * NVJ_EAGAIN if there is no free image.
 */
void *nvj_images_get(struct nvj_images *s, uint64_t block, bool whole, uint64_t **order,
		     int *error);

/* Removes all images. */
void nvj_images_clear(struct nvj_images *s);

/*
 * Writes all images home, and removes them. Returns 0 or NVJ_EIO. It does not
 * flush the disk.
 */
int nvj_images_write(struct nvj_images *s);

/* How many images were written in all. */
uint64_t nvj_images_written(const struct nvj_images *s);

#endif
