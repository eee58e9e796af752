/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a crash may leave. Events of a trace are applied one by one; between any
 * two, each image can be made that the machine allows:
 *
 * - Memory (x86, eADR or not): what a thread wrote and then fenced is there. Of
 *   the rest any subset of the 8-byte words may be, and of a word that was
 *   written several times any of the values. The order of words in a line, which
 *   stores through the cache would keep, is not relied on.
 * - Memory that is a plain file: what was written to the pages that msync was
 *   called for, before that call, is there once it has returned, whoever wrote it.
 *   Of the rest each sector of 512 bytes may be there as it was at any time since.
 * - The disk: what was written, had ended and was then flushed is there. Of the
 *   rest any subset of the 512-byte sectors.
 */
#ifndef TEST_CRASH_H
#define TEST_CRASH_H

#include "trace.h"

#include <stdbool.h>

#define CRASH_SECTOR_BYTES 512u

#define CRASH_NOBODY 255u /* as a thread */

struct crash_word {
	uint32_t word;
	uint8_t thread;
	uint64_t value;
	uint64_t number; /* in the order written */
};

struct crash_sector {
	uint32_t sector;
	uint32_t id; /* of the write */
	bool ended;
	const uint8_t *data;
	uint64_t hash; /* of the data */
};

struct crash {
	size_t region_bytes, disk_bytes;
	uint8_t *base, *disk_base;   /* what is there for good */
	uint8_t *image, *disk_image; /* an image; equal to base but in crash_choose .. revert */
	uint64_t base_hash;          /* of base and disk_base */
	uint64_t *sector_hash;       /* of each sector of disk_base */
	struct crash_word *words;    /* not yet for good, in the order written */
	struct crash_sector *sectors;
	uint32_t word_count, word_room, sector_count, sector_room;
	uint64_t word_number;      /* of the next word */
	uint64_t sync_before[256]; /* of each thread: its msync is for words of lower numbers */
};

void crash_begin(struct crash *c, const uint8_t *region, size_t region_bytes, const uint8_t *disk,
		 size_t disk_bytes);
void crash_end(struct crash *c);

/*
 * Begins where another is, as after a kill of its process: the disk has ended
 * and kept all that it was given. Words stay pending, and no fence of the next
 * process makes them persistent, as only its predecessor's cache lines have them.
 */
void crash_inherit(struct crash *c, const struct crash *from);

void crash_apply(struct crash *c, const struct trace_event *e);

/* Words and sectors that may or may not be there: a selection has a byte for each, words first. */
uint32_t crash_pending(const struct crash *c);
/* Makes the image of a selection; returns its hash. */
uint64_t crash_choose(struct crash *c, const uint8_t *selection);
/* Reverts it; events are what recovery did to the image. */
void crash_revert(struct crash *c, const struct trace *recovery);

#endif
