/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Makes the inode map anew. Its first page is the control page; each other one has
 * 128 extents of 32 inodes, all of one allocation group. Lists link those pages of a
 * group that have free inodes, those that have free places of extents, and those
 * that have no extent at all.
 *
 * A page of the map may name an extent of an inode that was never committed: its
 * blocks are free in the persistent block map. Such an extent does not exist.
 */
#include "jfs.h"

#define EXTENTS 128u
#define EXTENT_INODES 32u
#define EXTENT_BLOCKS 4u
#define NOBODY 0xffffffffu
#define MOST_GROUPS 128u

/* A page. */
#define GROUP_START_AT 0u
#define INODE_NEXT_AT 12u
#define INODE_BACK_AT 16u
#define EXTENT_NEXT_AT 20u
#define EXTENT_BACK_AT 24u
#define UNUSED_NEXT_AT 28u
#define INODE_SUMMARY_AT 32u
#define EXTENT_SUMMARY_AT 48u
#define FREE_INODES_AT 64u
#define FREE_EXTENTS_AT 68u
#define WORKING_AT 2048u
#define PERSISTENT_AT 2560u
#define EXTENTS_AT 3072u

/* The control page. */
#define UNUSED_AT 0u
#define PAGES_AT 4u
#define INODES_AT 8u
#define FREE_AT 12u
#define GROUPS_AT 2048u
#define GROUP_BYTES 16u

/* The control page of the block map. */
#define GROUP_LOG2_AT 52u
#define DMAP_PERSISTENT_AT 3072u

/* A doubly linked list of pages. */
struct list {
	uint32_t *next, *back;
	uint32_t first[MOST_GROUPS], last[MOST_GROUPS];
};

struct inodes {
	const struct nvj_jfs_disk *disk;
	const struct nvj_jfs_extents *map, *blocks;
	uint32_t pages;
	unsigned group_log2;
	uint8_t *page, *before;
	uint8_t *dmap;
	uint64_t dmap_number; /* of dmap; ~0: none is read */
	struct list with_inodes, with_extents;
	uint32_t *unused_next;
	uint32_t unused;
	uint32_t inodes, free;
	uint32_t group_inodes[MOST_GROUPS], group_free[MOST_GROUPS];
};

/* Says whether all blocks of an extent are allocated in the persistent block map. */
static int is_backed(struct inodes *n, const uint8_t *extent, bool *backed)
{
	uint64_t block = nvj_jfs_extent_block(extent);

	*backed = false;
	if (!block || nvj_jfs_extent_length(extent) != EXTENT_BLOCKS)
		return 0;
	for (unsigned i = 0; i < EXTENT_BLOCKS; i++, block++) {
		unsigned bit = block & 8191;

		if (n->dmap_number != block >> 13) {
			int error = nvj_jfs_map_read(n->disk, n->blocks, nvj_jfs_dmap_page(block),
						     n->dmap);

			/* Beyond the end: not an extent of this disk. */
			if (error == NVJ_JFS_EUCLEAN)
				return 0;
			if (error)
				return error;
			n->dmap_number = block >> 13;
		}
		if (!(nvj_jfs_get32(n->dmap + DMAP_PERSISTENT_AT + bit / 32 * 4) >>
			      (31 - bit % 32) &
		      1))
			return 0;
	}
	*backed = true;
	return 0;
}

static void set_bit_of(uint8_t *words, unsigned bit)
{
	uint8_t *word = words + bit / 32 * 4;

	nvj_jfs_put32(word, nvj_jfs_get32(word) | 1u << (31 - bit % 32));
}

/* Makes all of a page but its links. */
static int make_page(struct inodes *n, uint32_t *extents, uint32_t *free)
{
	uint8_t *page = n->page;

	*extents = *free = 0;
	__builtin_memset(page + INODE_SUMMARY_AT, 0, 16);
	__builtin_memset(page + EXTENT_SUMMARY_AT, 0, 16);
	for (unsigned i = 0; i < EXTENTS; i++) {
		uint8_t *extent = page + EXTENTS_AT + 8 * i;
		uint32_t allocated = nvj_jfs_get32(page + PERSISTENT_AT + 4 * i);
		bool backed;
		int error = is_backed(n, extent, &backed);

		if (error)
			return error;
		if (!backed) {
			__builtin_memset(extent, 0, 8);
			allocated = 0;
			nvj_jfs_put32(page + PERSISTENT_AT + 4 * i, 0);
		}
		nvj_jfs_put32(page + WORKING_AT + 4 * i, allocated);
		/* Set: the extent has no free inode. */
		if (!backed || allocated == 0xffffffffu)
			set_bit_of(page + INODE_SUMMARY_AT, i);
		/* Set: there is an extent. */
		if (backed) {
			set_bit_of(page + EXTENT_SUMMARY_AT, i);
			*extents += 1;
			*free += EXTENT_INODES - nvj_jfs_bits(allocated);
		}
	}
	nvj_jfs_put32(page + FREE_INODES_AT, *free);
	nvj_jfs_put32(page + FREE_EXTENTS_AT, EXTENTS - *extents);
	return 0;
}

static void append(struct list *list, unsigned group, uint32_t number)
{
	uint32_t last = list->last[group];

	list->back[number] = last;
	if (last == NOBODY)
		list->first[group] = number;
	else
		list->next[last] = number;
	list->last[group] = number;
}

/* Counts a page, and notes which lists it is in. */
static int count_page(struct inodes *n, uint32_t number)
{
	uint32_t extents, free;
	uint64_t group;
	int error = nvj_jfs_map_read(n->disk, n->map, number + 1, n->page);

	if (!error)
		error = make_page(n, &extents, &free);
	if (error)
		return error;
	if (!extents) {
		n->unused_next[number] = n->unused;
		n->unused = number;
		return 0;
	}
	group = nvj_jfs_get64(n->page + GROUP_START_AT) >> n->group_log2;
	if (group >= MOST_GROUPS)
		return NVJ_JFS_EUCLEAN;
	n->inodes += extents * EXTENT_INODES;
	n->free += free;
	n->group_inodes[group] += extents * EXTENT_INODES;
	n->group_free[group] += free;
	if (free)
		append(&n->with_inodes, (unsigned)group, number);
	if (extents < EXTENTS)
		append(&n->with_extents, (unsigned)group, number);
	return 0;
}

static int write_page(struct inodes *n, uint32_t number)
{
	uint32_t extents, free;
	int error = nvj_jfs_map_read(n->disk, n->map, number + 1, n->before);

	if (error)
		return error;
	nvj_jfs_copy(n->page, n->before, NVJ_JFS_BLOCK_BYTES);
	error = make_page(n, &extents, &free);
	if (error)
		return error;
	nvj_jfs_put32(n->page + INODE_NEXT_AT, n->with_inodes.next[number]);
	nvj_jfs_put32(n->page + INODE_BACK_AT, n->with_inodes.back[number]);
	nvj_jfs_put32(n->page + EXTENT_NEXT_AT, n->with_extents.next[number]);
	nvj_jfs_put32(n->page + EXTENT_BACK_AT, n->with_extents.back[number]);
	nvj_jfs_put32(n->page + UNUSED_NEXT_AT, n->unused_next[number]);
	return nvj_jfs_map_write(n->disk, n->map, number + 1, n->page, n->before);
}

static int write_control(struct inodes *n)
{
	int error = nvj_jfs_map_read(n->disk, n->map, 0, n->before);

	if (error)
		return error;
	nvj_jfs_copy(n->page, n->before, NVJ_JFS_BLOCK_BYTES);
	nvj_jfs_put32(n->page + UNUSED_AT, n->unused);
	nvj_jfs_put32(n->page + PAGES_AT, n->pages);
	nvj_jfs_put32(n->page + INODES_AT, n->inodes);
	nvj_jfs_put32(n->page + FREE_AT, n->free);
	for (unsigned i = 0; i < MOST_GROUPS; i++) {
		uint8_t *group = n->page + GROUPS_AT + GROUP_BYTES * i;

		nvj_jfs_put32(group, n->with_inodes.first[i]);
		nvj_jfs_put32(group + 4, n->with_extents.first[i]);
		nvj_jfs_put32(group + 8, n->group_inodes[i]);
		nvj_jfs_put32(group + 12, n->group_free[i]);
	}
	return nvj_jfs_map_write(n->disk, n->map, 0, n->page, n->before);
}

static int make(struct inodes *n)
{
	int error = nvj_jfs_map_read(n->disk, n->blocks, 0, n->page);

	if (error)
		return error;
	n->group_log2 = nvj_jfs_get32(n->page + GROUP_LOG2_AT);
	if (n->group_log2 > 40)
		return NVJ_JFS_EUCLEAN;
	for (uint32_t i = 0; i < n->pages && !error; i++)
		error = count_page(n, i);
	for (uint32_t i = 0; i < n->pages && !error; i++)
		error = write_page(n, i);
	return error ? error : write_control(n);
}

int nvj_jfs_rebuild_inodes(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *blocks,
			   const struct nvj_jfs_extents *map)
{
	const size_t page_bytes = 3 * (size_t)NVJ_JFS_BLOCK_BYTES;
	struct inodes *n;
	uint8_t *pages;
	uint32_t *links;
	size_t link_bytes;
	int error = NVJ_JFS_ENOMEM;

	if (map->blocks < 2 || map->blocks > 1u << 20)
		return NVJ_JFS_EUCLEAN;
	link_bytes = 5 * (size_t)(map->blocks - 1) * sizeof(*links);
	n = disk->allocate(disk->context, sizeof(*n));
	pages = disk->allocate(disk->context, page_bytes);
	links = disk->allocate(disk->context, link_bytes);
	if (n && pages && links) {
		uint32_t count = (uint32_t)map->blocks - 1;

		n->disk = disk;
		n->map = map;
		n->blocks = blocks;
		n->pages = count;
		n->page = pages;
		n->before = pages + NVJ_JFS_BLOCK_BYTES;
		n->dmap = pages + 2 * NVJ_JFS_BLOCK_BYTES;
		n->dmap_number = ~UINT64_C(0);
		__builtin_memset(links, 0xff, link_bytes);
		n->with_inodes.next = links;
		n->with_inodes.back = links + count;
		n->with_extents.next = links + 2 * count;
		n->with_extents.back = links + 3 * count;
		n->unused_next = links + 4 * count;
		n->unused = NOBODY;
		for (unsigned i = 0; i < MOST_GROUPS; i++) {
			n->with_inodes.first[i] = n->with_inodes.last[i] = NOBODY;
			n->with_extents.first[i] = n->with_extents.last[i] = NOBODY;
		}
		error = make(n);
	}
	if (links)
		disk->release(disk->context, links, link_bytes);
	if (pages)
		disk->release(disk->context, pages, page_bytes);
	if (n)
		disk->release(disk->context, n, sizeof(*n));
	return error;
}

int nvj_jfs_rebuild(const struct nvj_jfs_disk *disk)
{
	struct nvj_jfs_extents blocks = {0}, map = {0};
	int error = nvj_jfs_extents_read(disk, 2, &blocks);

	if (!error)
		error = nvj_jfs_extents_read(disk, 16, &map);
	if (!error)
		error = nvj_jfs_rebuild_blocks(disk, &blocks);
	if (!error)
		error = nvj_jfs_rebuild_inodes(disk, &blocks, &map);
	nvj_jfs_extents_free(disk, &map);
	nvj_jfs_extents_free(disk, &blocks);
	return error;
}
