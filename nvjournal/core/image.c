/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Memory for images, a pool for each partition: it grows by slabs and is given
 * back when the journal closes. And the images of earlier transactions that are
 * kept, frozen, while a later one changes the block.
 */
#include "journal.h"

#define IMAGES_OF_SLAB 16u

struct nvj_slab *nvj_slab_make(struct nvj *j, size_t bytes, size_t images_bytes)
{
	struct nvj_slab *slab = nvj_allocate(j, bytes);

	if (!slab)
		return NULL;
	slab->bytes = bytes;
	if (images_bytes) {
		/* Whole blocks by themselves, so that the platform may align them as its disk
		 * likes. */
		slab->images = nvj_allocate(j, images_bytes);
		if (!slab->images) {
			j->platform.release(j->platform.context, slab, bytes);
			return NULL;
		}
		slab->images_bytes = images_bytes;
	}
	return slab;
}

void nvj_slabs_release(struct nvj *j, struct nvj_partition *p)
{
	while (p->slabs) {
		struct nvj_slab *slab = p->slabs;

		p->slabs = slab->next;
		if (slab->images)
			j->platform.release(j->platform.context, slab->images, slab->images_bytes);
		j->platform.release(j->platform.context, slab, slab->bytes);
	}
}

/* Under list_lock. */
static bool grow(struct nvj *j, struct nvj_partition *p)
{
	size_t header = (sizeof(struct nvj_slab) + 63) & ~(size_t)63;
	struct nvj_slab *slab = nvj_slab_make(j, header + IMAGES_OF_SLAB * sizeof(struct nvj_image),
					      IMAGES_OF_SLAB * (size_t)NVJ_BLOCK_BYTES);
	struct nvj_image *images;

	if (!slab)
		return false;
	images = (struct nvj_image *)(void *)((uint8_t *)slab + header);
	for (unsigned i = 0; i < IMAGES_OF_SLAB; i++) {
		images[i].bytes = (uint8_t *)slab->images + i * (size_t)NVJ_BLOCK_BYTES;
		images[i].next = p->free_images;
		p->free_images = &images[i];
	}
	slab->next = p->slabs;
	p->slabs = slab;
	return true;
}

struct nvj_image *nvj_image_take(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_image *image = NULL;

	nvj_lock(&p->list_lock, &j->platform);
	if (p->free_images || grow(j, p)) {
		image = p->free_images;
		p->free_images = image->next;
		image->next = NULL;
		image->tid = 0;
		image->revoked_by = 0;
		image->writing = false;
	}
	nvj_unlock(&p->list_lock, &j->platform);
	return image;
}

void nvj_image_give(struct nvj *j, struct nvj_partition *p, struct nvj_image *image)
{
	nvj_lock(&p->list_lock, &j->platform);
	image->next = p->free_images;
	p->free_images = image;
	nvj_unlock(&p->list_lock, &j->platform);
}

/*
 * Of the versions that are committed only the newest is ever written: older ones
 * go, and so do those at home and those that a sealed transaction revoked. What
 * is being written stays until that has ended.
 */
void nvj_frozen_trim(struct nvj *j, struct nvj_partition *p, struct nvj_block *b)
{
	uint64_t sealed = nvj_load_sc(&j->sealed);
	bool superseded = b->image && b->image->tid && b->image->tid <= sealed;
	struct nvj_image **link = &b->frozen;

	while (*link) {
		struct nvj_image *v = *link;
		bool needed = !superseded && v->tid > b->home_tid && !nvj_image_is_dead(j, v);

		if (v->tid <= sealed)
			superseded = true;
		if (needed || v->writing) {
			link = &v->next;
			continue;
		}
		*link = v->next;
		nvj_image_give(j, p, v);
	}
}
