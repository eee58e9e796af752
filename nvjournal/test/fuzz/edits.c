/* SPDX-License-Identifier: Apache-2.0 */
#include "edits.h"
#include "lib/sample.h"

#include "core/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum edit_kind {
	EDIT_BIT,    /* flips a bit */
	EDIT_WORD,   /* 8 bytes anywhere */
	EDIT_RECORD, /* a word of a record's header, and its CRC is made right */
	EDIT_COMMIT, /* a word of a commit record, and it is sealed again */
	EDIT_SUPER,  /* a word of the superblock, in one copy or both, with its CRC */
	EDIT_TAIL,   /* a tail that is sound */
	EDIT_COPY,   /* lines from one place to another */
	EDIT_KINDS
};

struct edit {
	uint8_t kind, field;
	uint16_t where;
	uint64_t value;
};

static struct sample samples[SAMPLE_KINDS];
static bool made;

static uint64_t get(const struct edited *e, size_t at)
{
	uint64_t value;

	memcpy(&value, e->region + at, 8);
	return value;
}

/* Small numbers near what is there are worth more than any. */
static uint64_t changed(uint64_t now, uint64_t value)
{
	switch (value >> 62) {
	case 0:
		return now + (value & 0xff);
	case 1:
		return now - (value & 0xff);
	case 2:
		return now ^ (UINT64_C(1) << (value & 63));
	default:
		return value & (UINT64_MAX >> (value >> 56 & 63));
	}
}

static void edit_record(struct edited *e, const struct edit *edit, const struct nvj_geometry *g)
{
	uint32_t partition = edit->where % g->partitions;
	uint64_t start = edit->where / g->partitions % g->ring_lines;
	struct nvj_disk_record header;
	static uint8_t lines[64 * 64];
	uint64_t *word = (uint64_t *)(void *)&header + 1 + edit->field % 7;

	/* The next record from there. */
	for (uint64_t i = 0; i < 70; i++, start++) {
		memcpy(&header, nvj_line_at(g, partition, start), sizeof(header));
		if (header.magic == NVJ_RECORD_MAGIC)
			break;
	}
	if (header.magic != NVJ_RECORD_MAGIC)
		return;
	*word = changed(*word, edit->value);
	if (header.lines >= 1 && header.lines <= 65) {
		for (unsigned i = 0; i + 1 < header.lines; i++)
			memcpy(lines + 64 * i, nvj_line_at(g, partition, start + 1 + i), 64);
		header.crc = nvj_record_crc_packed(g->seed, &header, lines);
	}
	memcpy(nvj_line_at(g, partition, start), &header, sizeof(header));
	(void)e;
}

static void edit_commit(const struct edit *edit, const struct nvj_geometry *g)
{
	struct nvj_commit_buffer b;
	struct nvj_disk_commit *slot = nvj_commit_at(g, edit->where);
	size_t bytes = (size_t)g->commit_lines * NVJ_LINE_BYTES;
	uint64_t *word = (uint64_t *)(void *)&b + 1 + edit->field % (bytes / 8 - 1);

	memset(&b, 0, sizeof(b));
	memcpy(&b, slot, bytes);
	*word = changed(*word, edit->value);
	b.seal = nvj_commit_seal(g, &b);
	memcpy(slot, &b, bytes);
}

static void edit_super(struct edited *e, const struct edit *edit)
{
	struct nvj_disk_super super;
	uint64_t *word = (uint64_t *)(void *)&super + edit->field % 16;

	memcpy(&super, e->region, sizeof(super));
	*word = changed(*word, edit->value);
	super.crc = nvj_super_crc(&super);
	if (edit->where & 1)
		memcpy(e->region + NVJ_SUPER_OFFSET, &super, sizeof(super));
	if (edit->where & 2)
		memcpy(e->region + NVJ_SUPER_COPY_OFFSET, &super, sizeof(super));
}

static void apply(struct edited *e, const struct edit *edit)
{
	struct nvj_region region = e->world.nvj_region;
	struct nvj_disk_super super;
	struct nvj_geometry g;
	uint64_t word;
	size_t lines = e->region_bytes / NVJ_LINE_BYTES, at, from;
	bool sound;

	memcpy(&super, e->region, sizeof(super));
	sound = nvj_geometry(&region, &super, &g) == 0;
	e->forged |= edit->kind % EDIT_KINDS >= EDIT_RECORD && edit->kind % EDIT_KINDS <= EDIT_TAIL;
	switch (edit->kind % EDIT_KINDS) {
	case EDIT_BIT:
		at = edit->value % (8 * e->region_bytes);
		e->region[at / 8] ^= (uint8_t)(1u << at % 8);
		break;
	case EDIT_WORD:
		at = (size_t)edit->where * 8 % e->region_bytes;
		word = changed(get(e, at), edit->value);
		memcpy(e->region + at, &word, 8);
		break;
	case EDIT_RECORD:
		if (sound)
			edit_record(e, edit, &g);
		break;
	case EDIT_COMMIT:
		if (sound)
			edit_commit(edit, &g);
		break;
	case EDIT_SUPER:
		edit_super(e, edit);
		break;
	case EDIT_TAIL:
		if (!sound)
			break;
		word = nvj_tail_encode(g.seed,
				       changed(get(e, NVJ_TAIL_OFFSET), edit->value) & NVJ_MAX_TID);
		memcpy(e->region + NVJ_TAIL_OFFSET + (edit->where & 1) * NVJ_LINE_BYTES, &word, 8);
		break;
	case EDIT_COPY:
		from = edit->where % lines;
		at = edit->value % lines;
		for (size_t n = 0; n <= edit->field % 8u && from + n < lines && at + n < lines; n++)
			memmove(e->region + (at + n) * 64, e->region + (from + n) * 64, 64);
		break;
	}
}

bool edits_begin(struct edited *e, const uint8_t *input, size_t bytes)
{
	const struct sample *sample;

	if (!made) {
		for (unsigned i = 0; i < SAMPLE_KINDS; i++)
			sample_make(&samples[i], i);
		made = true;
	}
	if (bytes < 1)
		return false;
	sample = &samples[input[0] % SAMPLE_KINDS];
	e->forged = false;
	e->region_bytes = sample->region_bytes;
	e->region = aligned_alloc(64, sample->region_bytes);
	e->disk = aligned_alloc(64, (size_t)FUZZ_BLOCKS * NVJ_BLOCK_BYTES);
	if (e->region == NULL || e->disk == NULL)
		abort();
	memcpy(e->region, sample->region, sample->region_bytes);
	memcpy(e->disk, sample->disk, (size_t)FUZZ_BLOCKS * NVJ_BLOCK_BYTES);
	world_begin(&e->world, e->region, e->region_bytes, e->disk, FUZZ_BLOCKS, 1);
	/* A damaged record may name any block; the disk says that it has none such. */
	e->world.any_block = true;
	for (size_t at = 1; at + EDIT_BYTES <= bytes; at += EDIT_BYTES) {
		struct edit edit = {.kind = input[at], .field = input[at + 1]};

		memcpy(&edit.where, input + at + 2, 2);
		memcpy(&edit.value, input + at + 4, 8);
		apply(e, &edit);
	}
	return true;
}

void edits_end(struct edited *e)
{
	if (e->world.wrong[0] != 0 || e->world.allocated != 0) {
		fprintf(stderr, "must not be: %s; %lld pieces of memory not released\n",
			e->world.wrong, (long long)e->world.allocated);
		abort();
	}
	world_end(&e->world);
	free(e->region);
	free(e->disk);
}
