/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The images of replay: one piece of memory, and a table of block numbers. */
#include "replay_images.h"
#include "hash.h"

struct slot {
	uint64_t block;
	uint32_t image; /* number of the block + 1; 0: free */
};

struct nvj_images {
	const struct nvj_platform *platform;
	unsigned queue;
	uint32_t room;  /* how many images fit into the memory */
	uint32_t used;  /* the images 0..used-1 contain blocks */
	uint32_t slots; /* a power of two, at least twice room */
	uint64_t written;
	uint8_t *images;
	uint64_t *blocks; /* of each image */
	uint64_t *order;  /* NVJ_BLOCK_LINES numbers of each image */
	struct slot *slot;
	struct nvj_write write[NVJ_QUEUE_DEPTH];
	struct nvj_write *idle[NVJ_QUEUE_DEPTH];
};

static void release(const struct nvj_platform *p, void *memory, size_t bytes)
{
	if (memory)
		p->release(p->context, memory, bytes);
}

static void free_arrays(struct nvj_images *s)
{
	release(s->platform, s->images, (size_t)s->room * NVJ_BLOCK_BYTES);
	release(s->platform, s->blocks, s->room * sizeof(*s->blocks));
	release(s->platform, s->order, s->room * (sizeof(*s->order) * NVJ_BLOCK_LINES));
	release(s->platform, s->slot, s->slots * sizeof(*s->slot));
}

static bool allocate_arrays(struct nvj_images *s, uint32_t room)
{
	const struct nvj_platform *p = s->platform;

	s->room = room;
	s->slots = 2;
	while (s->slots < room * 2)
		s->slots *= 2;
	s->images = p->allocate(p->context, (size_t)room * NVJ_BLOCK_BYTES);
	s->blocks = p->allocate(p->context, room * sizeof(*s->blocks));
	s->order = p->allocate(p->context, room * (sizeof(*s->order) * NVJ_BLOCK_LINES));
	s->slot = p->allocate(p->context, s->slots * sizeof(*s->slot));
	if (s->images && s->blocks && s->order && s->slot)
		return true;
	free_arrays(s);
	return false;
}

struct nvj_images *nvj_images_new(const struct nvj_platform *platform, unsigned queue,
				  uint32_t count)
{
	struct nvj_images *s = platform->allocate(platform->context, sizeof(*s));

	if (!s)
		return NULL;
	s->platform = platform;
	s->queue = queue;
	for (unsigned i = 0; i < NVJ_QUEUE_DEPTH; i++)
		s->idle[i] = &s->write[i];
	for (; count; count /= 2)
		if (allocate_arrays(s, count))
			return s;
	release(platform, s, sizeof(*s));
	return NULL;
}

void nvj_images_free(struct nvj_images *s)
{
	free_arrays(s);
	release(s->platform, s, sizeof(*s));
}

static struct slot *slot_of(const struct nvj_images *s, uint64_t block)
{
	uint32_t i = nvj_hash(block) & (s->slots - 1);

	while (s->slot[i].image && s->slot[i].block != block)
		i = (i + 1) & (s->slots - 1);
	return &s->slot[i];
}

static void *image(const struct nvj_images *s, uint32_t n)
{
	return s->images + (size_t)n * NVJ_BLOCK_BYTES;
}

static uint64_t *order_of(const struct nvj_images *s, uint32_t n)
{
	return s->order + (size_t)n * NVJ_BLOCK_LINES;
}

void *nvj_images_get(struct nvj_images *s, uint64_t block, bool whole, uint64_t **order, int *error)
{
	const struct nvj_platform *p = s->platform;
	struct slot *slot = slot_of(s, block);

	if (slot->image) {
		*order = order_of(s, slot->image - 1);
		return image(s, slot->image - 1);
	}
	if (s->used == s->room) {
		*error = NVJ_EAGAIN;
		return NULL;
	}
	if (!whole && p->read(p->context, block, image(s, s->used))) {
		*error = NVJ_EIO;
		return NULL;
	}
	s->blocks[s->used] = block;
	*order = order_of(s, s->used);
	__builtin_memset(*order, 0, sizeof(**order) * NVJ_BLOCK_LINES);
	slot->block = block;
	slot->image = ++s->used;
	return image(s, s->used - 1);
}

/* Waits for a write. Then its queue entry is free again. */
static int finish_one(struct nvj_images *s, unsigned *idle)
{
	struct nvj_write *w = s->platform->finish_write(s->platform->context, s->queue);

	s->idle[(*idle)++] = w;
	if (w->error)
		return NVJ_EIO;
	s->written++;
	return 0;
}

int nvj_images_write(struct nvj_images *s)
{
	const struct nvj_platform *p = s->platform;
	unsigned idle = NVJ_QUEUE_DEPTH;
	int error = 0;

	for (uint32_t i = 0; i < s->used && !error; i++) {
		struct nvj_write *w;

		if (!idle)
			error = finish_one(s, &idle);
		if (error)
			break;
		w = s->idle[--idle];
		*w = (struct nvj_write){.block = s->blocks[i], .image = image(s, i)};
		if (p->start_write(p->context, s->queue, w)) {
			s->idle[idle++] = w;
			error = NVJ_EIO;
		}
	}
	/*
	 * Also after an error, because an image must not change while it is
	 * being written.
	 */
	while (idle < NVJ_QUEUE_DEPTH)
		if (finish_one(s, &idle))
			error = NVJ_EIO;

	nvj_images_clear(s);
	return error;
}

void nvj_images_clear(struct nvj_images *s)
{
	s->used = 0;
	__builtin_memset(s->slot, 0, s->slots * sizeof(*s->slot));
}

uint64_t nvj_images_written(const struct nvj_images *s)
{
	return s->written;
}
