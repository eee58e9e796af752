/* SPDX-License-Identifier: Apache-2.0 */
/* What a new journal would destroy: other content of its region, and other journals. */
#include "others.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "error.h"

/* File systems and partition tables have their magic numbers here, Btrfs the last one at
 * 64 KiB. */
#define MARKS_BYTES (UINT64_C(128) << 10)

/*
 * Where journals begin. A look at each page would read all of a device, which may have
 * hundreds of GiB.
 */
#define PLACES_BYTES (UINT64_C(64) << 10)

/*
 * Clears in a block of the region what a format writes before the superblocks: the tails of
 * transaction 0, of which only the last two bytes are not 0, and the anchor. A journal that
 * was opened before has later tails. It is not made anew, even if its superblocks are lost.
 */
static void clear_format(uint8_t *block, uint64_t at)
{
	struct nvj_disk_commit *anchor = (void *)block;

	if (at == NVJ_TAIL_OFFSET) {
		memset(block + 6, 0, 2);
		memset(block + NVJ_TAIL_COPY_OFFSET - NVJ_TAIL_OFFSET + 6, 0, 2);
	}
	if (at == NVJ_COMMITS_OFFSET && anchor->kind == NVJ_ANCHOR &&
	    anchor->partitions <= NVJ_MAX_PARTITIONS)
		anchor->seal = anchor->kind = anchor->partitions = 0;
}

int nvju_unused(const char *file, const struct nvj_region *region)
{
	_Alignas(8) uint8_t block[NVJ_BLOCK_BYTES];

	for (uint64_t at = 0; at < MARKS_BYTES && at < region->size_bytes; at += sizeof(block)) {
		if (region->read(block, (const uint8_t *)region->base + at, sizeof(block)))
			return nvju_fail(NVJ_EIO,
					 "cannot format %s: unreadable memory at byte %" PRIu64
					 " of the region; use another, or destroy its content with "
					 "nvj format --force",
					 file, at);
		clear_format(block, at);
		for (unsigned n = 0; n < sizeof(block); n++)
			if (block[n])
				return 0;
	}
	return 1;
}

/*
 * A page or two of each place are read, and a read ahead would be of all memory between them. A
 * new journal has nothing to read later.
 */
static void read_nothing_ahead(const struct nvj_region *region)
{
	(void)madvise(region->base, region->size_bytes, MADV_RANDOM);
}

static bool is_magic(const struct nvj_region *region, uint64_t at)
{
	uint64_t magic;

	return !region->read(&magic, (const uint8_t *)region->base + at, sizeof(magic)) &&
	       magic == NVJ_SUPER_MAGIC;
}

/*
 * A journal begins at byte `at` of the region, as far as the bytes before `end` show it. Only
 * one of its superblocks may be left, or be before the end.
 */
static bool has_magic(const struct nvj_region *region, uint64_t at, uint64_t end)
{
	return is_magic(region, at) ||
	       (end - at > NVJ_SUPER_COPY_OFFSET && is_magic(region, at + NVJ_SUPER_COPY_OFFSET));
}

/* Refuses if another journal starts within the region. */
static int refuse_slices(const char *file, uint64_t offset, const struct nvj_region *region,
			 uint64_t journal_bytes)
{
	/* The places are those of the file: a forced journal may begin between them. */
	uint64_t place = offset + (journal_bytes ? journal_bytes - 1 : 0);

	read_nothing_ahead(region);
	for (place = place / PLACES_BYTES * PLACES_BYTES + PLACES_BYTES;
	     place < offset + region->size_bytes; place += PLACES_BYTES)
		if (has_magic(region, place - offset, region->size_bytes))
			return nvju_fail(
				-EEXIST,
				"cannot format %s: another journal begins at byte %" PRIu64
				" of it; end before that (--size; in C, region_size_bytes), "
				"or destroy it with nvj format --force",
				file, place);
	return 0;
}

/*
 * Refuses if another journal begins before offset and reaches beyond it. What is written
 * at offset would be in its rings, also where they are empty now.
 */
static int refuse_inside(const char *file, uint64_t offset)
{
	struct nvj_disk_super super;
	struct nvju_region *whole;
	char text[NVJU_JOURNAL_BYTES];
	const struct nvj_region *map;
	uint64_t at = 0, next, end;
	int error;

	if (!offset)
		return 0;
	error = nvju_region_open(&whole, file, 0, 0, NVJU_READ_ONLY | NVJU_UNLOCKED);
	if (error)
		return error;
	map = nvju_region(whole);
	read_nothing_ahead(map);
	end = offset < map->size_bytes ? offset : map->size_bytes;
	for (; !error && at < end; at = next) {
		struct nvj_region rest = *map;

		next = at + PLACES_BYTES;
		rest.base = (uint8_t *)rest.base + at;
		rest.size_bytes = UINT64_MAX - at; /* it may have been cut short */
		/* What is at offset is not of a journal before it. */
		if (!has_magic(map, at, end) || nvj_read_super(&rest, &super) ||
		    super.size_bytes > INT64_MAX)
			continue;
		if (at + super.size_bytes > offset)
			error = nvju_fail(
				-EEXIST,
				"cannot format %s at byte %" PRIu64
				": the journal that begins at byte %" PRIu64 " has %" PRIu64
				" bytes, so it includes this byte; begin after it (--offset; in C, "
				"region_offset), or make it shorter: nvj format %s --size %" PRIu64
				"; or destroy it with nvj format --force",
				file, offset, at, super.size_bytes, nvju_journal(file, at, text),
				offset - at);
		next = at + (super.size_bytes + PLACES_BYTES - 1) / PLACES_BYTES * PLACES_BYTES;
	}
	nvju_region_close(whole);
	return error;
}

int nvju_refuse_others(const char *file, uint64_t offset, const struct nvj_region *region,
		       uint64_t journal_bytes)
{
	int error;

	if (offset % PLACES_BYTES && !journal_bytes)
		return nvju_fail(NVJ_EINVAL,
				 "cannot format %s at byte %" PRIu64 ": a later format would not "
				 "find a journal there; begin at a multiple of 64K (--offset; in "
				 "C, region_offset), or make it with nvj format --force",
				 file, offset);
	error = refuse_inside(file, offset);
	return error ? error : refuse_slices(file, offset, region, journal_bytes);
}
