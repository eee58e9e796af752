/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A JFS disk whose journal is in a region of nvjournal: what jfsnvj.ko and nvj both
 * do with it.
 *
 * 	super.c		the superblock: facts, and our mark in it
 * 	extents.c	finds the blocks of a map, by its inode
 * 	tree.c		summary trees of free blocks
 * 	blocks.c	makes the block map anew from its persistent part
 * 	inodes.c	makes the inode map anew from its persistent part
 *
 * Portable C as nvjournal/core: no C library and no kernel header. Integers on the
 * disk are little-endian. Only JFS of 4096-byte blocks exists for Linux.
 *
 * The working maps. JFS's maps of blocks and of inodes have two halves: the
 * persistent map has what committed transactions have allocated; the working map
 * also what open ones have. Summaries (trees, lists, counts) describe the working
 * map. The journal has only the persistent half. After a crash nothing is open. So
 * recovery copies the persistent half to the working one, and computes all summaries
 * again. It is a function of the persistent half alone, and so may be repeated.
 */
#ifndef NVJ_JFS_H
#define NVJ_JFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NVJ_JFS_BLOCK_BYTES 4096u
/* The blocks of both superblocks. */
#define NVJ_JFS_SUPER 8u
#define NVJ_JFS_SUPER_COPY 15u

/* States of a JFS. */
#define NVJ_JFS_CLEAN 0u
#define NVJ_JFS_MOUNTED 1u
#define NVJ_JFS_DIRTY 2u

/* What a superblock says. */
struct nvj_jfs_super {
	uint8_t uuid[16]; /* of the disk */
	uint64_t blocks;  /* of the file system, with its own log and fsck's work space */
	uint32_t state;
	uint32_t version; /* if marked: as it was before */
	bool inline_log;  /* its own log is on the disk itself */
	uint64_t log_block;
	uint32_t log_blocks;
	/*
	 * It is mounted with its journal in a region, or was, and needs recovery
	 * from there.
	 */
	bool marked;
	uint8_t journal_uuid[16]; /* if marked: of the region's journal */
	uint64_t mark_block; /* if marked: where checkpoints write the journal's tail; 0: none */
};

/* Reads a superblock of 4096 bytes. False: it is no JFS that can be used. */
bool nvj_jfs_read_super(const void *block, struct nvj_jfs_super *super);
/*
 * Marks the superblock, so that stock JFS and fsck.jfs refuse the disk: both
 * compare the version. Everything that the mark needs is in a part of the block
 * that JFS does not use.
 */
void nvj_jfs_mark(void *block, const uint8_t journal_uuid[16], uint64_t mark_block);
void nvj_jfs_unmark(void *block);
void nvj_jfs_set_state(void *block, uint32_t state);
/* Says whether the disk's own log is empty; page is its second block. */
bool nvj_jfs_log_is_clean(const void *page);

/* A disk. Functions return 0 or a negative error, which is passed on. */
struct nvj_jfs_disk {
	void *context;
	int (*read)(void *context, uint64_t block, void *image);
	int (*write)(void *context, uint64_t block, const void *image);
	/* Zeroed memory. NULL: there is none. */
	void *(*allocate)(void *context, size_t bytes);
	void (*release)(void *context, void *memory, size_t bytes);
};

/* A map that is not that of a sound JFS. */
#define NVJ_JFS_EUCLEAN (-117)
#define NVJ_JFS_ENOMEM (-12)

/*
 * Makes both maps anew from their persistent halves. Blocks that have the right
 * content are not written.
 */
int nvj_jfs_rebuild(const struct nvj_jfs_disk *disk);

/* --- Among these files --------------------------------------------------------- */

static inline uint32_t nvj_jfs_get16(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

static inline uint32_t nvj_jfs_get32(const uint8_t *at)
{
	return nvj_jfs_get16(at) | nvj_jfs_get16(at + 2) << 16;
}

static inline uint64_t nvj_jfs_get64(const uint8_t *at)
{
	return nvj_jfs_get32(at) | (uint64_t)nvj_jfs_get32(at + 4) << 32;
}

static inline void nvj_jfs_put32(uint8_t *at, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static inline void nvj_jfs_put64(uint8_t *at, uint64_t value)
{
	nvj_jfs_put32(at, (uint32_t)value);
	nvj_jfs_put32(at + 4, (uint32_t)(value >> 32));
}

/* An extent of 8 bytes: 24 bits of length, 40 of address. */
static inline uint32_t nvj_jfs_extent_length(const uint8_t *at)
{
	return nvj_jfs_get32(at) & 0xffffffu;
}

static inline uint64_t nvj_jfs_extent_block(const uint8_t *at)
{
	return (uint64_t)(nvj_jfs_get32(at) >> 24) << 32 | nvj_jfs_get32(at + 4);
}

struct nvj_jfs_piece {
	uint64_t first; /* in the map */
	uint64_t block; /* on the disk */
	uint64_t count;
};

/* The blocks of a map, in the order of their numbers in the map. */
struct nvj_jfs_extents {
	struct nvj_jfs_piece *piece;
	unsigned count, most;
	uint64_t blocks; /* of the map */
};

/* The aggregate's inode: 2 is the block map, 16 the inode map. */
int nvj_jfs_extents_read(const struct nvj_jfs_disk *disk, unsigned inode,
			 struct nvj_jfs_extents *extents);
void nvj_jfs_extents_free(const struct nvj_jfs_disk *disk, struct nvj_jfs_extents *extents);
/* The block on the disk of a block of the map; 0: there is none. */
uint64_t nvj_jfs_extents_find(const struct nvj_jfs_extents *extents, uint64_t block);
int nvj_jfs_map_read(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *extents,
		     uint64_t block, uint8_t *page);
/* Writes it, unless it is what was there before. */
int nvj_jfs_map_write(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *extents,
		      uint64_t block, const uint8_t *page, const uint8_t *before);

/* The log2 of the largest free buddy in a word of 32 bits; -1: none. */
int8_t nvj_jfs_word_free(uint32_t allocated);
/*
 * Makes a summary tree of leaves, a power of 4 many, which begin at tree +
 * (leaves - 1) / 3: leaves that are free buddies become one. least is a leaf's value
 * when it is all free. Returns the root.
 */
int8_t nvj_jfs_tree_make(int8_t *tree, unsigned leaves, int8_t least);

/* blocks.c, inodes.c */
int nvj_jfs_rebuild_blocks(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *map);
int nvj_jfs_rebuild_inodes(const struct nvj_jfs_disk *disk, const struct nvj_jfs_extents *blocks,
			   const struct nvj_jfs_extents *map);
/* The page of the block map for a block of the disk. */
static inline uint64_t nvj_jfs_dmap_page(uint64_t block)
{
	return (block >> 13) + (block >> 23) + (block >> 33) + 4;
}

/* Not __builtin_popcount, which may call a function of the compiler's library. */
static inline unsigned nvj_jfs_bits(uint32_t word)
{
	unsigned bits = 0;

	for (; word; word &= word - 1)
		bits++;
	return bits;
}

static inline void nvj_jfs_copy(void *to, const void *from, size_t bytes)
{
	__builtin_memcpy(to, from, bytes);
}

#endif
