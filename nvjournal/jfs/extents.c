/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Finds the blocks of a map. An inode of the aggregate has the root of a B+-tree of
 * extents; the pages below it have the same layout.
 */
#include "jfs.h"

/* The aggregate's inodes, 8 in a block. */
#define INODES_BLOCK 11u
#define INODE_BYTES 512u
#define INODES_OF_BLOCK (NVJ_JFS_BLOCK_BYTES / INODE_BYTES)
#define SIZE_AT 24u
#define ROOT_AT 224u

/* In a page or a root of the tree: 2 slots of header, then entries of 16 bytes. */
#define FLAG_AT 16u
#define NEXT_AT 18u
#define IS_LEAF 0x02u
#define ENTRY_BYTES 16u
#define FIRST_ENTRY 2u
#define ROOT_ENTRIES 18u
#define PAGE_ENTRIES 256u
/* More levels than any tree has. */
#define MOST_LEVELS 8u

static int add(const struct nvj_jfs_disk *disk, struct nvj_jfs_extents *e, const uint8_t *entry)
{
	struct nvj_jfs_piece *piece;

	if (e->count == e->most) {
		unsigned most = e->most ? 2 * e->most : 64;
		struct nvj_jfs_piece *bigger =
			disk->allocate(disk->context, most * sizeof(*bigger));

		if (!bigger)
			return NVJ_JFS_ENOMEM;
		if (e->count)
			nvj_jfs_copy(bigger, e->piece, e->count * sizeof(*bigger));
		if (e->piece)
			disk->release(disk->context, e->piece, e->most * sizeof(*bigger));
		e->piece = bigger;
		e->most = most;
	}
	piece = &e->piece[e->count];
	piece->first = (uint64_t)entry[3] << 32 | nvj_jfs_get32(entry + 4);
	piece->block = nvj_jfs_extent_block(entry + 8);
	piece->count = nvj_jfs_extent_length(entry + 8);
	if (!piece->count || (e->count && piece->first < piece[-1].first + piece[-1].count))
		return NVJ_JFS_EUCLEAN;
	e->count++;
	return 0;
}

/*
 * No node is empty, and no extent. So each leaf has a block that those before it have not,
 * and a damaged tree that has a page many times ends with an error.
 */
static int walk(const struct nvj_jfs_disk *disk, struct nvj_jfs_extents *e, const uint8_t *node,
		unsigned most, unsigned level)
{
	unsigned next = nvj_jfs_get16(node + NEXT_AT);
	uint8_t *page = NULL;
	int error = 0;

	if (next <= FIRST_ENTRY || next > most || level > MOST_LEVELS)
		return NVJ_JFS_EUCLEAN;
	if (!(node[FLAG_AT] & IS_LEAF)) {
		page = disk->allocate(disk->context, NVJ_JFS_BLOCK_BYTES);
		if (!page)
			return NVJ_JFS_ENOMEM;
	}
	for (unsigned i = FIRST_ENTRY; i < next && !error; i++) {
		const uint8_t *entry = node + i * ENTRY_BYTES;

		if (!page) {
			error = add(disk, e, entry);
			continue;
		}
		error = disk->read(disk->context, nvj_jfs_extent_block(entry + 8), page);
		if (!error)
			error = walk(disk, e, page, PAGE_ENTRIES, level + 1);
	}
	if (page)
		disk->release(disk->context, page, NVJ_JFS_BLOCK_BYTES);
	return error;
}

int nvj_jfs_extents_read(const struct nvj_jfs_disk *disk, unsigned inode,
			 struct nvj_jfs_extents *extents)
{
	uint8_t *page = disk->allocate(disk->context, NVJ_JFS_BLOCK_BYTES);
	const uint8_t *at;
	int error;

	*extents = (struct nvj_jfs_extents){0};
	if (!page)
		return NVJ_JFS_ENOMEM;
	error = disk->read(disk->context, INODES_BLOCK + inode / INODES_OF_BLOCK, page);
	at = page + inode % INODES_OF_BLOCK * INODE_BYTES;
	if (!error) {
		extents->blocks = nvj_jfs_get64(at + SIZE_AT) / NVJ_JFS_BLOCK_BYTES;
		error = walk(disk, extents, at + ROOT_AT, ROOT_ENTRIES, 0);
	}
	disk->release(disk->context, page, NVJ_JFS_BLOCK_BYTES);
	return error;
}

void nvj_jfs_extents_free(const struct nvj_jfs_disk *disk, struct nvj_jfs_extents *extents)
{
	if (extents->piece)
		disk->release(disk->context, extents->piece,
			      extents->most * sizeof(*extents->piece));
	*extents = (struct nvj_jfs_extents){0};
}

uint64_t nvj_jfs_extents_find(const struct nvj_jfs_extents *extents, uint64_t block)
{
	unsigned low = 0, high = extents->count;

	while (low < high) {
		unsigned middle = low + (high - low) / 2;
		const struct nvj_jfs_piece *piece = &extents->piece[middle];

		if (block < piece->first)
			high = middle;
		else if (block - piece->first >= piece->count)
			low = middle + 1;
		else
			return piece->block + (block - piece->first);
	}
	return 0;
}

int nvj_jfs_map_read(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *extents,
		     uint64_t block, uint8_t *page)
{
	uint64_t at = nvj_jfs_extents_find(extents, block);

	return at ? disk->read(disk->context, at, page) : NVJ_JFS_EUCLEAN;
}

int nvj_jfs_map_write(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *extents,
		      uint64_t block, const uint8_t *page, const uint8_t *before)
{
	if (!__builtin_memcmp(page, before, NVJ_JFS_BLOCK_BYTES))
		return 0;
	return disk->write(disk->context, nvj_jfs_extents_find(extents, block), page);
}
