/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The superblock of a JFS, and our mark in it. */
#include "jfs.h"

/* Within the block of a superblock. */
#define VERSION_AT 4u
#define SIZE_AT 8u /* of the usable part, in sectors */
#define BLOCK_BYTES_AT 16u
#define SECTOR_LOG2_AT 28u
#define FLAG_AT 36u
#define STATE_AT 40u
#define LOG_AT 72u
#define FSCK_AT 80u
#define UUID_AT 136u

#define FLAG_INLINE_LOG 0x00000800u
/* The newest that JFS knows. */
#define VERSION_MOST 2u

/* JFS uses the first 184 bytes of the block. Ours, where no version has used any: */
#define MARK_AT 2048u
#define MARK_MAGIC_AT (MARK_AT + 0u) /* "JFSNVJ01" */
#define MARK_UUID_AT (MARK_AT + 8u)
#define MARK_BLOCK_AT (MARK_AT + 24u)
#define MARK_VERSION_AT (MARK_AT + 32u)
#define MARK_END (MARK_AT + 36u)
/* Added to the version: more than any that JFS and fsck.jfs know. */
#define VERSION_OURS 0x4e560000u

/* The superblock of a log, in its second page. */
#define LOG_MAGIC 0x87654321u
#define LOG_STATE_AT 28u
#define LOG_IS_CLEAN 1u

static bool has(const uint8_t *at, const char *text, unsigned length)
{
	for (unsigned i = 0; i < length; i++)
		if (at[i] != (uint8_t)text[i])
			return false;
	return true;
}

static bool is_marked(const uint8_t *block)
{
	return nvj_jfs_get32(block + VERSION_AT) > VERSION_MOST &&
	       has(block + MARK_MAGIC_AT, "JFSNVJ01", 8);
}

bool nvj_jfs_read_super(const void *image, struct nvj_jfs_super *super)
{
	const uint8_t *block = image;
	unsigned sectors_log2;

	*super = (struct nvj_jfs_super){0};
	if (!has(block, "JFS1", 4) || nvj_jfs_get32(block + BLOCK_BYTES_AT) != NVJ_JFS_BLOCK_BYTES)
		return false;
	sectors_log2 = nvj_jfs_get16(block + SECTOR_LOG2_AT);
	if (sectors_log2 < 9 || sectors_log2 > 12)
		return false;
	nvj_jfs_copy(super->uuid, block + UUID_AT, 16);
	super->blocks = (nvj_jfs_get64(block + SIZE_AT) >> (12 - sectors_log2)) +
			nvj_jfs_extent_length(block + FSCK_AT);
	super->state = nvj_jfs_get32(block + STATE_AT);
	super->inline_log = nvj_jfs_get32(block + FLAG_AT) & FLAG_INLINE_LOG;
	if (super->inline_log) {
		super->log_block = nvj_jfs_extent_block(block + LOG_AT);
		super->log_blocks = nvj_jfs_extent_length(block + LOG_AT);
		super->blocks += super->log_blocks;
	}
	super->marked = is_marked(block);
	super->version = nvj_jfs_get32(block + (super->marked ? MARK_VERSION_AT : VERSION_AT));
	if (super->marked) {
		nvj_jfs_copy(super->journal_uuid, block + MARK_UUID_AT, 16);
		super->mark_block = nvj_jfs_get64(block + MARK_BLOCK_AT);
	}
	return super->version >= 1 && super->version <= VERSION_MOST;
}

void nvj_jfs_mark(void *image, const uint8_t journal_uuid[16], uint64_t mark_block)
{
	uint8_t *block = image;

	if (!is_marked(block)) {
		nvj_jfs_copy(block + MARK_VERSION_AT, block + VERSION_AT, 4);
		nvj_jfs_put32(block + VERSION_AT, VERSION_OURS + nvj_jfs_get32(block + VERSION_AT));
	}
	nvj_jfs_copy(block + MARK_MAGIC_AT, "JFSNVJ01", 8);
	nvj_jfs_copy(block + MARK_UUID_AT, journal_uuid, 16);
	nvj_jfs_put64(block + MARK_BLOCK_AT, mark_block);
}

void nvj_jfs_unmark(void *image)
{
	uint8_t *block = image;

	if (!is_marked(block))
		return;
	nvj_jfs_copy(block + VERSION_AT, block + MARK_VERSION_AT, 4);
	__builtin_memset(block + MARK_AT, 0, MARK_END - MARK_AT);
}

void nvj_jfs_set_state(void *image, uint32_t state)
{
	nvj_jfs_put32((uint8_t *)image + STATE_AT, state);
}

bool nvj_jfs_log_is_clean(const void *page)
{
	const uint8_t *at = page;

	return nvj_jfs_get32(at) == LOG_MAGIC && nvj_jfs_get32(at + LOG_STATE_AT) == LOG_IS_CLEAN;
}
