/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maps of a JFS whose control page or trees are damaged: an error, after a bounded
 * number of reads, and nothing is written. The JFS is a small one, made here.
 */
#include <string.h>

#include "jfs/jfs.h"
#include "lib/expect.h"

enum { BLOCKS = 64, INODES = 11, BLOCK_MAP = 16, INODE_MAP = 24, TREE = 32 };
enum { LEAF = 2, INNER = 4 };
/* In the control page of the block map. */
enum { LEVELS_AT = 24, GROUP_LOG2_AT = 52 };

static uint8_t disk[BLOCKS][NVJ_JFS_BLOCK_BYTES];
static unsigned reads, writes;

static int read_block(void *context, uint64_t block, void *image)
{
	(void)context;
	expect(++reads < 1000);
	if (block >= BLOCKS)
		return -5;
	memcpy(image, disk[block], NVJ_JFS_BLOCK_BYTES);
	return 0;
}

static int write_block(void *context, uint64_t block, const void *image)
{
	(void)context;
	writes++;
	if (block >= BLOCKS)
		return -5;
	memcpy(disk[block], image, NVJ_JFS_BLOCK_BYTES);
	return 0;
}

static void *allocate(void *context, size_t bytes)
{
	(void)context;
	return calloc(1, bytes);
}

static void release(void *context, void *memory, size_t bytes)
{
	(void)context;
	(void)bytes;
	free(memory);
}

static int rebuild(void)
{
	const struct nvj_jfs_disk it = {
		.read = read_block, .write = write_block, .allocate = allocate, .release = release};

	reads = writes = 0;
	return nvj_jfs_rebuild(&it);
}

/* A page or root of a tree: entries 2 to next - 1. */
static void put_node(uint8_t *node, uint8_t flag, uint8_t next)
{
	memset(node, 0, 16);
	node[16] = flag;
	node[18] = next;
}

static void put_entry(uint8_t *node, unsigned n, uint32_t first, uint32_t count, uint32_t block)
{
	nvj_jfs_put32(node + 16 * n + 4, first);
	nvj_jfs_put32(node + 16 * n + 8, count);
	nvj_jfs_put32(node + 16 * n + 12, block);
}

/* The root of the tree of a map: 2, the block map, or 16, the inode map. */
static uint8_t *root(unsigned inode)
{
	return disk[INODES + inode / 8] + inode % 8 * 512 + 224;
}

static void put_map(unsigned inode, uint32_t pages, uint32_t block)
{
	nvj_jfs_put64(root(inode) - 200, (uint64_t)pages * NVJ_JFS_BLOCK_BYTES);
	put_node(root(inode), LEAF, 3);
	put_entry(root(inode), 2, 0, pages, block);
}

static void make(void)
{
	memset(disk, 0, sizeof(disk));
	put_map(2, 5, BLOCK_MAP);
	put_map(16, 2, INODE_MAP);
	nvj_jfs_put64(disk[BLOCK_MAP], BLOCKS);
	nvj_jfs_put32(disk[BLOCK_MAP] + GROUP_LOG2_AT, 13);
}

static void a_sound_one_is_made(void)
{
	make();
	expect(rebuild() == 0);
	expect(writes > 0);
	/* All of the dmap is free. */
	expect(nvj_jfs_get64(disk[BLOCK_MAP] + 8) == 8192);
	expect(rebuild() == 0);
	expect(writes == 0);
}

static void impossible_levels_are_refused(void)
{
	const uint32_t levels[] = {3, 4, 0x7fffffff, 0xffffffff};

	for (unsigned n = 0; n < sizeof(levels) / sizeof(levels[0]); n++) {
		make();
		nvj_jfs_put32(disk[BLOCK_MAP] + LEVELS_AT, levels[n]);
		expect(rebuild() == NVJ_JFS_EUCLEAN);
		expect(writes == 0);
	}
}

/* Each page of the tree has the next one many times, and the last one has nothing. */
static void a_tree_without_leaves_ends(void)
{
	make();
	put_node(root(2), INNER, 18);
	for (unsigned n = 2; n < 18; n++)
		put_entry(root(2), n, n, 0, TREE);
	for (unsigned level = 0; level < 6; level++) {
		put_node(disk[TREE + level], INNER, 255);
		for (unsigned n = 2; n < 255; n++)
			put_entry(disk[TREE + level], n, n, 0, TREE + level + 1);
	}
	put_node(disk[TREE + 6], LEAF, 2);
	expect(rebuild() == NVJ_JFS_EUCLEAN);
	expect(writes == 0);
	/* The same with extents of no block. */
	put_node(disk[TREE + 6], LEAF, 255);
	expect(rebuild() == NVJ_JFS_EUCLEAN);
	expect(writes == 0);
}

int main(void)
{
	a_sound_one_is_made();
	impossible_levels_are_refused();
	a_tree_without_leaves_ends();
	return 0;
}
