/* SPDX-License-Identifier: Apache-2.0 */
#include "crash.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

static uint64_t word_hash(uint32_t word, uint64_t value)
{
	return random_mix(random_mix(value) + word * UINT64_C(0xd1342543de82ef95));
}

static uint64_t load(const uint8_t *memory, uint32_t word)
{
	uint64_t value;

	memcpy(&value, memory + 8 * (size_t)word, 8);
	return value;
}

static uint64_t data_hash(uint32_t sector, const uint8_t *data)
{
	uint64_t hash = sector + 1;

	for (unsigned i = 0; i < CRASH_SECTOR_BYTES / 8; i++)
		hash = random_mix(hash ^ load(data, i));
	return hash;
}

void crash_begin(struct crash *c, const uint8_t *region, size_t region_bytes, const uint8_t *disk,
		 size_t disk_bytes)
{
	memset(c, 0, sizeof(*c));
	c->region_bytes = region_bytes;
	c->disk_bytes = disk_bytes;
	c->base = aligned_alloc(4096, region_bytes);
	c->image = aligned_alloc(4096, region_bytes);
	c->disk_base = aligned_alloc(4096, disk_bytes);
	c->disk_image = aligned_alloc(4096, disk_bytes);
	c->sector_hash = calloc(disk_bytes / CRASH_SECTOR_BYTES, sizeof(uint64_t));
	if (!c->base || !c->image || !c->disk_base || !c->disk_image || !c->sector_hash)
		abort();
	memcpy(c->base, region, region_bytes);
	memcpy(c->image, region, region_bytes);
	memcpy(c->disk_base, disk, disk_bytes);
	memcpy(c->disk_image, disk, disk_bytes);
	for (uint32_t i = 0; i < disk_bytes / CRASH_SECTOR_BYTES; i++) {
		c->sector_hash[i] = data_hash(i, disk + (size_t)i * CRASH_SECTOR_BYTES);
		c->base_hash ^= c->sector_hash[i];
	}
	/* The region's own part begins at 0: only differences are compared. */
}

void crash_end(struct crash *c)
{
	free(c->base);
	free(c->image);
	free(c->disk_base);
	free(c->disk_image);
	free(c->sector_hash);
	free(c->words);
	free(c->sectors);
	memset(c, 0, sizeof(*c));
}

void crash_inherit(struct crash *c, const struct crash *from)
{
	crash_begin(c, from->base, from->region_bytes, from->disk_base, from->disk_bytes);
	for (uint32_t i = 0; i < from->sector_count; i++) {
		const struct crash_sector *s = &from->sectors[i];
		size_t at = (size_t)s->sector * CRASH_SECTOR_BYTES;

		memcpy(c->disk_base + at, s->data, CRASH_SECTOR_BYTES);
		memcpy(c->disk_image + at, s->data, CRASH_SECTOR_BYTES);
		c->base_hash ^= c->sector_hash[s->sector] ^ s->hash;
		c->sector_hash[s->sector] = s->hash;
	}
	c->word_number = from->word_number;
	c->word_count = c->word_room = from->word_count;
	c->words = malloc((from->word_count + 1) * sizeof(*c->words));
	if (c->words == NULL)
		abort();
	for (uint32_t i = 0; i < from->word_count; i++) {
		c->words[i] = from->words[i];
		c->words[i].thread = CRASH_NOBODY;
	}
}

static void pend_word(struct crash *c, unsigned thread, uint32_t word, uint64_t value)
{
	bool pending = false;

	for (uint32_t i = 0; i < c->word_count && !pending; i++)
		pending = c->words[i].word == word;
	/* A word that does not change is there already. */
	if (!pending && load(c->base, word) == value)
		return;
	if (c->word_count == c->word_room) {
		c->word_room = c->word_room ? 2 * c->word_room : 1024;
		c->words = realloc(c->words, c->word_room * sizeof(*c->words));
		if (c->words == NULL)
			abort();
	}
	c->words[c->word_count++] = (struct crash_word){.word = word,
							.thread = (uint8_t)thread,
							.value = value,
							.number = c->word_number++};
}

static void keep_word(struct crash *c, uint32_t word, uint64_t value)
{
	c->base_hash ^= word_hash(word, load(c->base, word)) ^ word_hash(word, value);
	memcpy(c->base + 8 * (size_t)word, &value, 8);
	memcpy(c->image + 8 * (size_t)word, &value, 8);
}

/*
 * What the thread wrote is there. What another wrote to the same word before
 * that is overwritten; what came after it stays pending.
 */
static void fence(struct crash *c, unsigned thread)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->word_count; i++) {
		struct crash_word w = c->words[i];
		bool gone = w.thread == thread;

		if (gone) {
			keep_word(c, w.word, w.value);
		} else {
			for (uint32_t k = i + 1; k < c->word_count && !gone; k++)
				gone = c->words[k].thread == thread && c->words[k].word == w.word;
		}
		if (!gone)
			c->words[kept++] = w;
	}
	c->word_count = kept;
}

/* What was written to these bytes before the msync began is there. */
static void sync_end(struct crash *c, unsigned thread, uint64_t where, uint32_t bytes)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->word_count; i++) {
		struct crash_word w = c->words[i];

		if (w.number < c->sync_before[thread] && 8 * (uint64_t)w.word >= where &&
		    8 * (uint64_t)w.word < where + bytes)
			keep_word(c, w.word, w.value);
		else
			c->words[kept++] = w;
	}
	c->word_count = kept;
}

static void disk_start(struct crash *c, const struct trace_event *e)
{
	uint32_t first = (uint32_t)(e->where * (e->bytes / CRASH_SECTOR_BYTES));

	for (uint32_t i = 0; i < e->bytes / CRASH_SECTOR_BYTES; i++) {
		const uint8_t *data = e->data + (size_t)i * CRASH_SECTOR_BYTES;
		uint64_t hash = data_hash(first + i, data);
		bool pending = false;

		for (uint32_t k = 0; k < c->sector_count && !pending; k++)
			pending = c->sectors[k].sector == first + i;
		if (!pending && c->sector_hash[first + i] == hash)
			continue;
		if (c->sector_count == c->sector_room) {
			c->sector_room = c->sector_room ? 2 * c->sector_room : 256;
			c->sectors = realloc(c->sectors, c->sector_room * sizeof(*c->sectors));
			if (c->sectors == NULL)
				abort();
		}
		c->sectors[c->sector_count++] = (struct crash_sector){
			.sector = first + i, .id = e->id, .data = data, .hash = hash};
	}
}

static void flush(struct crash *c)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->sector_count; i++) {
		struct crash_sector s = c->sectors[i];
		size_t at = (size_t)s.sector * CRASH_SECTOR_BYTES;

		if (!s.ended) {
			c->sectors[kept++] = s;
			continue;
		}
		memcpy(c->disk_base + at, s.data, CRASH_SECTOR_BYTES);
		memcpy(c->disk_image + at, s.data, CRASH_SECTOR_BYTES);
		c->base_hash ^= c->sector_hash[s.sector] ^ s.hash;
		c->sector_hash[s.sector] = s.hash;
	}
	c->sector_count = kept;
}

static void fail(struct crash *c, uint32_t id)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < c->sector_count; i++)
		if (c->sectors[i].id != id)
			c->sectors[kept++] = c->sectors[i];
	c->sector_count = kept;
}

void crash_apply(struct crash *c, const struct trace_event *e)
{
	switch (e->kind) {
	case TRACE_WRITE:
	case TRACE_STORE64:
		for (uint32_t i = 0; i < e->bytes / 8; i++)
			pend_word(c, e->thread, (uint32_t)(e->where / 8) + i, load(e->data, i));
		break;
	case TRACE_FENCE:
		fence(c, e->thread);
		break;
	case TRACE_SYNC_START:
		c->sync_before[e->thread] = c->word_number;
		break;
	case TRACE_SYNC_END:
		sync_end(c, e->thread, e->where, e->bytes);
		break;
	case TRACE_DISK_START:
		disk_start(c, e);
		break;
	case TRACE_DISK_END:
		for (uint32_t i = 0; i < c->sector_count; i++)
			if (c->sectors[i].id == e->id)
				c->sectors[i].ended = true;
		break;
	case TRACE_DISK_FAILED:
		fail(c, e->id);
		break;
	case TRACE_DISK_FLUSH:
		flush(c);
		break;
	default:
		break;
	}
}

uint32_t crash_pending(const struct crash *c)
{
	return c->word_count + c->sector_count;
}

uint64_t crash_choose(struct crash *c, const uint8_t *selection)
{
	uint64_t hash = c->base_hash;

	for (uint32_t i = 0; i < c->word_count; i++) {
		const struct crash_word *w = &c->words[i];

		if (!selection[i])
			continue;
		hash ^= word_hash(w->word, load(c->image, w->word)) ^ word_hash(w->word, w->value);
		memcpy(c->image + 8 * (size_t)w->word, &w->value, 8);
	}
	for (uint32_t i = 0; i < c->sector_count; i++) {
		const struct crash_sector *s = &c->sectors[i];

		if (!selection[c->word_count + i])
			continue;
		memcpy(c->disk_image + (size_t)s->sector * CRASH_SECTOR_BYTES, s->data,
		       CRASH_SECTOR_BYTES);
		/* Later sectors in the same place come later here: not exact, but fair. */
		hash ^= c->sector_hash[s->sector] ^ s->hash;
	}
	return hash;
}

static void restore(uint8_t *image, const uint8_t *base, size_t at, size_t bytes)
{
	memcpy(image + at, base + at, bytes);
}

void crash_revert(struct crash *c, const struct trace *recovery)
{
	for (uint32_t i = 0; i < c->word_count; i++)
		restore(c->image, c->base, 8 * (size_t)c->words[i].word, 8);
	for (uint32_t i = 0; i < c->sector_count; i++)
		restore(c->disk_image, c->disk_base,
			(size_t)c->sectors[i].sector * CRASH_SECTOR_BYTES, CRASH_SECTOR_BYTES);
	for (size_t i = 0; i < recovery->count; i++) {
		const struct trace_event *e = &recovery->event[i];

		if (e->kind == TRACE_WRITE || e->kind == TRACE_STORE64)
			restore(c->image, c->base, e->where, e->bytes);
		else if (e->kind == TRACE_DISK_START)
			restore(c->disk_image, c->disk_base, e->where * e->bytes, e->bytes);
	}
}
