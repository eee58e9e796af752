/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Memory for images: each partition has a pool. Each image has a block of
 * memory of its own, which is freed when the caller needs memory (nvj_shrink)
 * or the journal closes. This file also keeps the frozen images of earlier
 * transactions while a later one changes the block.
 */
#include "journal.h"

#define IMAGES_OF_SLAB 16u

struct nvj_slab *nvj_slab_make(struct nvj *j, size_t bytes)
{
	struct nvj_slab *slab = nvj_allocate(j, bytes);

	if (slab)
		slab->bytes = bytes;
	return slab;
}

static void release_bytes(struct nvj *j, struct nvj_image *image)
{
	if (image->bytes)
		j->platform.release(j->platform.context, image->bytes, NVJ_BLOCK_BYTES);
	image->bytes = NULL;
}

static void release_slabs(struct nvj *j, struct nvj_slab *slab)
{
	while (slab) {
		struct nvj_slab *next = slab->next;

		for (unsigned i = 0; i < slab->image_count; i++)
			release_bytes(j, &slab->images[i]);
		j->platform.release(j->platform.context, slab, slab->bytes);
		slab = next;
	}
}

void nvj_slabs_release(struct nvj *j, struct nvj_partition *p)
{
	release_slabs(j, p->image_slabs);
	release_slabs(j, p->block_slabs);
	p->image_slabs = p->block_slabs = NULL;
}

/* Makes images without memory. The caller holds list_lock. */
static bool grow(struct nvj *j, struct nvj_partition *p)
{
	size_t header = (sizeof(struct nvj_slab) + 63) & ~(size_t)63;
	struct nvj_slab *slab =
		nvj_slab_make(j, header + IMAGES_OF_SLAB * sizeof(struct nvj_image));

	if (!slab)
		return false;
	slab->images = (struct nvj_image *)(void *)((uint8_t *)slab + header);
	slab->image_count = IMAGES_OF_SLAB;
	for (unsigned i = 0; i < IMAGES_OF_SLAB; i++) {
		slab->images[i].next = p->bare_images;
		p->bare_images = &slab->images[i];
	}
	slab->next = p->image_slabs;
	p->image_slabs = slab;
	return true;
}

static struct nvj_image *pop(struct nvj_image **list)
{
	struct nvj_image *image = *list;

	if (image)
		*list = image->next;
	return image;
}

static void push(struct nvj_image **list, struct nvj_image *image)
{
	image->next = *list;
	*list = image;
}

struct nvj_image *nvj_image_take_locked(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_image *image = pop(&p->free_images);

	if (!image && (p->bare_images || grow(j, p))) {
		image = pop(&p->bare_images);
		/*
		 * A whole block of its own, so that the platform can align it
		 * for its disk.
		 */
		image->bytes = nvj_allocate_block(j);
		if (image->bytes) {
			nvj_store(&p->images, p->images + 1);
		} else {
			push(&p->bare_images, image);
			image = NULL;
		}
	}
	if (image) {
		image->next = NULL;
		image->tid = 0;
		image->revoked_by = 0;
	}
	return image;
}

struct nvj_image *nvj_image_take(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_image *image;

	nvj_lock(&p->list_lock, &j->platform);
	image = nvj_image_take_locked(j, p);
	nvj_unlock(&p->list_lock, &j->platform);
	return image;
}

/*
 * Frees the memory of at most that many free images. The caller holds
 * list_lock.
 */
static uint64_t release_free(struct nvj *j, struct nvj_partition *p, uint64_t most)
{
	uint64_t released = 0;
	struct nvj_image *image;

	while (released < most && (image = pop(&p->free_images)) != NULL) {
		release_bytes(j, image);
		push(&p->bare_images, image);
		released++;
	}
	nvj_store(&p->images, p->images - released);
	return released;
}

/*
 * The owner of one of these locks may be allocating memory and waiting for it.
 * So this function only tries to lock.
 */
uint64_t nvj_shrink(struct nvj *j, uint64_t images, uint64_t *scanned)
{
	uint64_t most = images > UINT64_MAX / 2 ? UINT64_MAX : 2 * images;
	uint64_t looks = most, released = 0;
	uint32_t first = nvj_add_sc(&j->shrinks, 1) % j->partitions;

	for (uint32_t i = 0; i < j->partitions && looks && released < images; i++) {
		struct nvj_partition *p = &j->partition[(first + i) % j->partitions];
		uint64_t were_free;

		if (!nvj_try_lock(&p->list_lock))
			continue;
		were_free = release_free(j, p, images - released);
		released += were_free;
		looks -= were_free;
		if (nvj_blocks_evict(j, p, images - released, &looks))
			released += release_free(j, p, images - released);
		nvj_unlock(&p->list_lock, &j->platform);
	}
	*scanned = most - looks;
	return released;
}

uint64_t nvj_images(const struct nvj *j)
{
	uint64_t images = 0;

	for (unsigned i = 0; i < j->partitions; i++)
		images += nvj_load(&j->partition[i].images);
	return images;
}

void nvj_image_give(struct nvj *j, struct nvj_partition *p, struct nvj_image *image)
{
	nvj_lock(&p->list_lock, &j->platform);
	image->next = p->free_images;
	p->free_images = image;
	nvj_unlock(&p->list_lock, &j->platform);
}

void nvj_spare_put(struct nvj_block *b, struct nvj_image *image)
{
	push(&b->spares, image);
	b->spare_count++;
}

struct nvj_image *nvj_spare_take(struct nvj_block *b)
{
	struct nvj_image *image = pop(&b->spares);

	if (image)
		b->spare_count--;
	return image;
}

/*
 * Of the committed versions only the newest one is ever written. Older ones are
 * freed, as are those at home and those that a sealed transaction revoked. If a
 * version is not needed, no older one is, so a version never loses the newer
 * one that has its lines. The memory stays with the block: another processor
 * would have to fetch its lines.
 */
void nvj_frozen_trim(struct nvj *j, struct nvj_block *b)
{
	uint64_t sealed = nvj_load_sc(&j->sealed);
	bool superseded = b->image && b->image->tid && b->image->tid <= sealed;
	struct nvj_image **link = &b->frozen, *old;

	while (*link && !superseded && (*link)->tid > b->home_tid && !nvj_image_is_dead(j, *link)) {
		superseded = (*link)->tid <= sealed;
		link = &(*link)->next;
	}
	while ((old = pop(link)) != NULL) {
		if (b->spare_count < NVJ_GROUP)
			nvj_spare_put(b, old);
		else
			nvj_image_give(j, b->lists, old);
	}
}
