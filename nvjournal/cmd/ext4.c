/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk whose ext4 is journaled by ext4nvj. As long as it needs recovery from its
 * region, it has a mark and the UUID of that region. ext4 and e2fsck do not know
 * the mark, and refuse the disk; recovery removes it.
 *
 * ext4's superblock (Documentation/filesystems/ext4/super.rst of Linux) is at
 * byte 1024; integers are little-endian.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "../core/crc32c.h"
#include "nvj.h"

#define SUPER_AT 1024u
/* Within it. */
#define BLOCKS_LOW_AT 0x4u
#define LOG_BLOCK_BYTES_AT 0x18u
#define MAGIC_AT 0x38u
#define STATE_AT 0x3au
#define INCOMPAT_AT 0x60u
#define RO_COMPAT_AT 0x64u
#define UUID_AT 0x68u
#define JOURNAL_UUID_AT 0xd0u
#define BLOCKS_HIGH_AT 0x150u
/* EXT4_ERROR_BYTES that say what the errors were, their count first. */
#define ERRORS_AT 0x194u
/* The high bytes of their times, and their codes. */
#define ERROR_CODES_AT 0x278u
/* Ours: the number of the block that has the mark of the tail, 8 bytes. */
#define MARK_BLOCK_AT 0x3f4u
#define CHECKSUM_AT 0x3fcu

#define MAGIC 0xef53u
#define STATE_ERRORS 2u
#define INCOMPAT_RECOVER 0x4u
#define INCOMPAT_64BIT 0x80u
/* Ours: nvjournal/kernel/ext4/marker.h. */
#define INCOMPAT_NVJ 0x40000000u
#define RO_COMPAT_CHECKSUMS 0x400u

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

static void put32(uint8_t *at, uint32_t value)
{
	for (unsigned i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static bool is_ext4(const uint8_t *super)
{
	return (super[MAGIC_AT] | super[MAGIC_AT + 1] << 8) == MAGIC;
}

/* ext4's is the bare register, over all before it. */
static uint32_t checksum(const uint8_t *super)
{
	return nvj_crc32c(~0u, super, CHECKSUM_AT);
}

static uint64_t block_count(const uint8_t *super)
{
	uint64_t blocks = get32(super + BLOCKS_LOW_AT);

	if (get32(super + INCOMPAT_AT) & INCOMPAT_64BIT)
		blocks |= (uint64_t)get32(super + BLOCKS_HIGH_AT) << 32;
	return blocks;
}

int ext4_look(struct fs_disk *ext4, struct nvju_disk *disk)
{
	_Alignas(4096) uint8_t block[NVJ_BLOCK_BYTES];
	const uint8_t *super = block + SUPER_AT;

	memset(ext4, 0, sizeof(*ext4));
	if (nvju_disk_read(disk, 0, block)) {
		complain("%s", nvju_error());
		return -1;
	}
	ext4->found = is_ext4(super);
	if (!ext4->found)
		return 0;
	ext4->marked = get32(super + INCOMPAT_AT) & INCOMPAT_NVJ;
	ext4->needs_recovery = get32(super + INCOMPAT_AT) & INCOMPAT_RECOVER;
	memcpy(ext4->uuid, super + UUID_AT, 16);
	memcpy(ext4->journal_uuid, super + JOURNAL_UUID_AT, 16);
	ext4->ext4_state = super[STATE_AT];
	memcpy(ext4->ext4_errors, super + ERRORS_AT, EXT4_ERROR_BYTES);
	memcpy(ext4->ext4_error_codes, super + ERROR_CODES_AT, 4);
	if (!ext4->marked)
		return 0;
	/* 0: an earlier ext4nvj has marked the disk, without a block for the tail. */
	fs_read_mark(ext4, disk,
		     get32(super + MARK_BLOCK_AT) | (uint64_t)get32(super + MARK_BLOCK_AT + 4)
							    << 32,
		     block_count(super));
	return 0;
}

int ext4_read_size(const char *device, struct ext4_size *size)
{
	uint8_t super[1024];
	int fd = open(device, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : pread(fd, super, sizeof(super), SUPER_AT);
	int error = errno;

	if (fd >= 0)
		close(fd);
	if (got != (ssize_t)sizeof(super)) {
		complain("cannot read the superblock of %s: %s", device,
			 got < 0 ? strerror(error) : "the device ends before it");
		return -1;
	}
	if (!is_ext4(super)) {
		complain("%s is no ext4: its superblock has another mark", device);
		return -1;
	}
	size->block_bytes = 1024u << get32(super + LOG_BLOCK_BYTES_AT);
	size->blocks = block_count(super);
	return 0;
}

/*
 * ext4 writes errors to the superblock through the journal, or without it when the journal
 * is aborted. Recovery may have replaced the latter by an older superblock.
 */
static void keep_errors(uint8_t *super, const struct fs_disk *before)
{
	super[STATE_AT] |= before->ext4_state & STATE_ERRORS;
	if (get32(before->ext4_errors) <= get32(super + ERRORS_AT))
		return;
	memcpy(super + ERRORS_AT, before->ext4_errors, EXT4_ERROR_BYTES);
	memcpy(super + ERROR_CODES_AT, before->ext4_error_codes, 4);
}

int ext4_unmark(const char *target, struct nvju_disk *disk, const struct fs_disk *before,
		bool *unmarked)
{
	_Alignas(4096) uint8_t block[NVJ_BLOCK_BYTES];
	uint8_t *super = block + SUPER_AT;
	uint32_t incompat;

	*unmarked = false;
	/* Anew: the superblock may be among what was recovered. */
	if (nvju_disk_read(disk, 0, block)) {
		complain("%s", nvju_error());
		return -1;
	}
	incompat = get32(super + INCOMPAT_AT);
	if (!is_ext4(super) || !(incompat & INCOMPAT_NVJ))
		return 0;
	if (get32(super + RO_COMPAT_AT) & RO_COMPAT_CHECKSUMS &&
	    get32(super + CHECKSUM_AT) != checksum(super)) {
		complain(
			"%s has all that was committed, but its superblock's checksum is wrong: it "
			"stays marked. Look at it with dumpe2fs and debugfs",
			target);
		return -1;
	}
	keep_errors(super, before);
	put32(super + INCOMPAT_AT, incompat & ~(INCOMPAT_NVJ | INCOMPAT_RECOVER));
	memset(super + JOURNAL_UUID_AT, 0, 16);
	memset(super + MARK_BLOCK_AT, 0, 8);
	if (get32(super + RO_COMPAT_AT) & RO_COMPAT_CHECKSUMS)
		put32(super + CHECKSUM_AT, checksum(super));
	if (fs_write_block(disk, 0, block, true)) {
		complain("%s has all that was committed, but its superblock cannot be written: %s; "
			 "run this again when it works",
			 target, nvju_error());
		return -1;
	}
	*unmarked = true;
	return 0;
}
