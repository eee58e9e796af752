/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Makes the block map anew. Its pages are a control page, then pages of three
 * levels of summaries, with those of the bits (dmaps) between them. A summary has
 * 1024 leaves; a dmap has 8192 blocks.
 */
#include "jfs.h"

#define LEAVES 1024u
#define DMAP_LOG2 13u
#define DMAP_BLOCKS (1u << DMAP_LOG2)
#define DMAP_WORDS (DMAP_BLOCKS / 32)
#define MOST_LEVELS 3u

/* The control page. */
#define MAP_BLOCKS_AT 0u
#define FREE_AT 8u
#define GROUPS_AT 20u
#define LEVELS_AT 24u
#define MOST_GROUP_AT 28u
#define PREFERRED_GROUP_AT 32u
#define GROUP_LOG2_AT 52u
#define GROUP_FREE_AT 56u
#define MOST_FREE_AT 1088u
#define MOST_GROUPS 128u

/* A dmap. */
#define DMAP_FREE_AT 4u
#define DMAP_TREE_AT 33u
#define DMAP_LEAVES_AT (DMAP_TREE_AT + (DMAP_WORDS - 1) / 3)
#define WORKING_AT 2048u
#define PERSISTENT_AT 3072u
/* A summary. */
#define TREE_AT 17u
#define TREE_LEAVES_AT (TREE_AT + (LEAVES - 1) / 3)

struct blocks {
	const struct nvj_jfs_disk *disk;
	const struct nvj_jfs_extents *map;
	uint64_t map_blocks;
	uint64_t dmaps;
	unsigned levels; /* of summaries */
	unsigned group_log2;
	uint64_t free;
	uint64_t group_free[MOST_GROUPS];
	/* Of each level, the summary that is being made. */
	struct summary {
		uint8_t *page, *before;
		uint64_t number; /* of it in its level */
	} summary[MOST_LEVELS];
	uint8_t *page, *before;
	int8_t most_free; /* the root of the topmost summary */
};

static uint64_t summary_page(unsigned level, uint64_t number)
{
	uint64_t dmap = number << 10 * (level + 1);

	if (level == 2)
		return 1;
	if (level == 1)
		return dmap + (dmap >> 10) + (dmap >> 20) + 2;
	return dmap + (dmap >> 10) + (dmap >> 20) + 3;
}

static int begin_summary(struct blocks *b, unsigned level, uint64_t number)
{
	struct summary *s = &b->summary[level];
	int error = nvj_jfs_map_read(b->disk, b->map, summary_page(level, number), s->before);

	s->number = number;
	nvj_jfs_copy(s->page, s->before, NVJ_JFS_BLOCK_BYTES);
	__builtin_memset(s->page + TREE_LEAVES_AT, -1, LEAVES);
	return error;
}

/* Puts the root of something below into its leaf, and ends the summaries that are full. */
static int end_summary(struct blocks *b, unsigned level);

static int put_leaf(struct blocks *b, unsigned level, uint64_t number, int8_t root, bool last)
{
	struct summary *s = &b->summary[level];
	int error = 0;

	if (number % LEAVES == 0)
		error = begin_summary(b, level, number / LEAVES);
	if (error)
		return error;
	s->page[TREE_LEAVES_AT + number % LEAVES] = (uint8_t)root;
	if (number % LEAVES != LEAVES - 1 && !last)
		return 0;
	error = end_summary(b, level);
	if (error || level + 1 == b->levels)
		return error;
	return put_leaf(b, level + 1, s->number, (int8_t)s->page[TREE_AT], last);
}

static int end_summary(struct blocks *b, unsigned level)
{
	struct summary *s = &b->summary[level];

	b->most_free = nvj_jfs_tree_make((int8_t *)s->page + TREE_AT, LEAVES,
					 (int8_t)(DMAP_LOG2 + 10 * level));
	return nvj_jfs_map_write(b->disk, b->map, summary_page(level, s->number), s->page,
				 s->before);
}

/* Makes a dmap anew. */
static int make_dmap(struct blocks *b, uint64_t number)
{
	uint64_t place = nvj_jfs_dmap_page(number << DMAP_LOG2);
	int error = nvj_jfs_map_read(b->disk, b->map, place, b->before);
	uint32_t free = 0;
	int8_t root;

	if (error)
		return error;
	nvj_jfs_copy(b->page, b->before, NVJ_JFS_BLOCK_BYTES);
	nvj_jfs_copy(b->page + WORKING_AT, b->page + PERSISTENT_AT, 4 * DMAP_WORDS);
	for (unsigned i = 0; i < DMAP_WORDS; i++) {
		uint32_t allocated = nvj_jfs_get32(b->page + PERSISTENT_AT + 4 * i);

		free += 32u - nvj_jfs_bits(allocated);
		b->page[DMAP_LEAVES_AT + i] = (uint8_t)nvj_jfs_word_free(allocated);
	}
	root = nvj_jfs_tree_make((int8_t *)b->page + DMAP_TREE_AT, DMAP_WORDS, 5);
	nvj_jfs_put32(b->page + DMAP_FREE_AT, free);
	b->free += free;
	b->group_free[(number << DMAP_LOG2) >> b->group_log2] += free;
	error = nvj_jfs_map_write(b->disk, b->map, place, b->page, b->before);
	return error ? error : put_leaf(b, 0, number, root, number + 1 == b->dmaps);
}

/* The last group that has an allocated block. */
static unsigned most_group(const struct blocks *b, unsigned groups)
{
	uint64_t size = UINT64_C(1) << b->group_log2;
	unsigned group = groups;

	while (group-- > 1) {
		uint64_t first = (uint64_t)group << b->group_log2;
		uint64_t blocks = b->map_blocks - first < size ? b->map_blocks - first : size;

		if (first < b->map_blocks && b->group_free[group] != blocks)
			return group;
	}
	return 0;
}

static int make_control(struct blocks *b)
{
	unsigned groups, most;

	nvj_jfs_copy(b->page, b->before, NVJ_JFS_BLOCK_BYTES);
	groups = nvj_jfs_get32(b->page + GROUPS_AT);
	most = most_group(b, groups < MOST_GROUPS ? groups : MOST_GROUPS);
	nvj_jfs_put64(b->page + FREE_AT, b->free);
	nvj_jfs_put32(b->page + MOST_GROUP_AT, most);
	if (nvj_jfs_get32(b->page + PREFERRED_GROUP_AT) > most)
		nvj_jfs_put32(b->page + PREFERRED_GROUP_AT, most);
	for (unsigned i = 0; i < MOST_GROUPS; i++)
		nvj_jfs_put64(b->page + GROUP_FREE_AT + 8 * i, b->group_free[i]);
	b->page[MOST_FREE_AT] = (uint8_t)b->most_free;
	return nvj_jfs_map_write(b->disk, b->map, 0, b->page, b->before);
}

static int make(struct blocks *b)
{
	int error = nvj_jfs_map_read(b->disk, b->map, 0, b->before);

	if (error)
		return error;
	b->map_blocks = nvj_jfs_get64(b->before + MAP_BLOCKS_AT);
	b->levels = nvj_jfs_get32(b->before + LEVELS_AT) + 1;
	b->group_log2 = nvj_jfs_get32(b->before + GROUP_LOG2_AT);
	b->dmaps = (b->map_blocks + DMAP_BLOCKS - 1) >> DMAP_LOG2;
	if (!b->dmaps || !b->levels || b->levels > MOST_LEVELS || b->group_log2 < DMAP_LOG2 ||
	    b->group_log2 > 40 || (b->map_blocks - 1) >> b->group_log2 >= MOST_GROUPS ||
	    b->dmaps > UINT64_C(1) << 10 * b->levels)
		return NVJ_JFS_EUCLEAN;
	for (uint64_t i = 0; i < b->dmaps && !error; i++)
		error = make_dmap(b, i);
	if (!error)
		error = nvj_jfs_map_read(b->disk, b->map, 0, b->before);
	return error ? error : make_control(b);
}

int nvj_jfs_rebuild_blocks(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *map)
{
	const size_t bytes = (2 + 2 * MOST_LEVELS) * (size_t)NVJ_JFS_BLOCK_BYTES;
	struct blocks *b = disk->allocate(disk->context, sizeof(*b));
	uint8_t *pages = disk->allocate(disk->context, bytes);
	int error = NVJ_JFS_ENOMEM;

	if (b && pages) {
		b->disk = disk;
		b->map = map;
		b->page = pages;
		b->before = pages + NVJ_JFS_BLOCK_BYTES;
		for (unsigned i = 0; i < MOST_LEVELS; i++) {
			b->summary[i].page = pages + (2 + 2 * i) * NVJ_JFS_BLOCK_BYTES;
			b->summary[i].before = b->summary[i].page + NVJ_JFS_BLOCK_BYTES;
		}
		error = make(b);
	}
	if (pages)
		disk->release(disk->context, pages, bytes);
	if (b)
		disk->release(disk->context, b, sizeof(*b));
	return error;
}
