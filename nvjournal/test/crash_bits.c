/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every single bit of sound regions is flipped, one after the other, and the
 * region recovered. Either nothing is different, or it is reported; and if it is
 * reported as damage of what is committed, nothing was written. A committed
 * record's, a sealed commit's, a tail's and a superblock's bits are always
 * reported; of the last two, the other copy serves, and nothing is lost. Then
 * pairs of bits by chance, under the same rule; and each record is put where
 * another one of its length is, as if a line had been left from another lap.
 *
 *	crash_bits [PAIRS]
 */
#include "lib/random.h"
#include "lib/sample.h"

#include "core/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	uint64_t bits, reported, harmless, refused, pairs, pairs_reported, displaced;
} count;
static unsigned violations;

enum must {
	MUST_NOTHING,
	MUST_REPORT,  /* if it changes */
	MUST_SURVIVE, /* and recover all the same */
};

#define MOST_RECORDS 512u

struct covered {
	uint8_t *byte; /* enum must */
	const struct sample *sample;
	struct {
		uint64_t position;
		uint32_t partition, lines;
	} record[MOST_RECORDS];
	unsigned records;
};

static int cover_record(void *context, uint32_t partition, const struct nvj_disk_record *record,
			const void *lines, bool committed)
{
	struct covered *c = context;
	const struct nvj_disk_super *super = (const void *)c->sample->region;

	(void)lines;
	(void)committed; /* also one that is passed over lies on the way, and is checked */
	if (c->records < MOST_RECORDS) {
		c->record[c->records].position = record->position;
		c->record[c->records].partition = partition;
		c->record[c->records++].lines = record->lines;
	}
	for (unsigned i = 0; i < record->lines; i++)
		memset(c->byte + super->partition_offset +
			       (partition * super->ring_lines +
				(record->position + i) % super->ring_lines) *
				       NVJ_LINE_BYTES,
		       MUST_REPORT, NVJ_LINE_BYTES);
	return 0;
}

static void cover(struct covered *c, struct world *w)
{
	const struct nvj_disk_super *super = (const void *)c->sample->region;
	const struct nvj_report *r = &c->sample->report;

	if (nvj_walk(&w->nvj_region, &w->platform, cover_record, c) < 0)
		violations++;
	for (unsigned copy = 0; copy < 2; copy++) {
		memset(c->byte + copy * NVJ_SUPER_COPY_OFFSET, MUST_SURVIVE, sizeof(*super));
		memset(c->byte + NVJ_TAIL_OFFSET + copy * NVJ_LINE_BYTES, MUST_SURVIVE, 8);
	}
	for (uint64_t tid = r->tail_tid; tid <= r->committed_tid; tid++) {
		size_t lines = super->commit_lines;

		memset(c->byte + NVJ_COMMITS_OFFSET + tid % super->commits * lines * NVJ_LINE_BYTES,
		       MUST_REPORT, lines * NVJ_LINE_BYTES);
	}
}

struct bench {
	const struct sample *sample;
	struct world world;
	uint8_t *region, *disk;
};

/* Reverts what recovery wrote. */
static void revert(struct bench *b)
{
	const struct trace *t = &b->world.trace;

	for (size_t i = 0; i < t->count; i++) {
		const struct trace_event *e = &t->event[i];

		if (e->kind == TRACE_WRITE || e->kind == TRACE_STORE64)
			memcpy(b->region + e->where, b->sample->region + e->where, e->bytes);
		else if (e->kind == TRACE_DISK_START)
			memcpy(b->disk + e->where * e->bytes, b->sample->disk + e->where * e->bytes,
			       e->bytes);
	}
	trace_clear(&b->world.trace);
}

static void violation(const struct bench *b, unsigned kind, size_t bit, const char *what)
{
	(void)b;
	if (violations++ < 10)
		printf("VIOLATION: sample %u, byte %zu, bit %zu: %s\n", kind, bit / 8, bit % 8,
		       what);
}

/* Recovers; true if something was reported. */
static bool recover(struct bench *b, unsigned kind, size_t bit)
{
	size_t disk_bytes = (size_t)SAMPLE_BLOCKS * NVJ_BLOCK_BYTES;
	struct nvj_report report;
	bool reported;
	int r;

	memset(&report, 0, sizeof(report));
	r = nvj_recover(&b->world.nvj_region, &b->world.platform, &report);
	reported = r < 0 || report.findings != 0;
	if (r < 0) {
		count.refused++;
		if (b->world.trace.count != 0)
			violation(b, kind, bit, "refused, but something was written");
	} else if (memcmp(b->disk, b->sample->recovered, disk_bytes) != 0 ||
		   report.committed_tid != b->sample->report.committed_tid) {
		violation(b, kind, bit, "silently wrong");
	}
	if (b->world.wrong[0] != 0) {
		violation(b, kind, bit, b->world.wrong);
		b->world.wrong[0] = 0;
	}
	if (b->world.allocated != 0) {
		violation(b, kind, bit, "memory was not released");
		b->world.allocated = 0;
	}
	revert(b);
	return reported;
}

static uint8_t *line_at(const struct bench *b, const uint8_t *region, uint32_t partition,
			uint64_t position)
{
	const struct nvj_disk_super *super = (const void *)b->sample->region;

	return (uint8_t *)region + super->partition_offset +
	       (partition * super->ring_lines + position % super->ring_lines) * NVJ_LINE_BYTES;
}

/* A record that is sound in itself, in another's place: its position tells. */
static void displace(struct bench *b, unsigned kind, const struct covered *c)
{
	for (unsigned to = 0; to < c->records; to++) {
		for (unsigned from = 0; from < c->records; from++) {
			uint32_t lines = c->record[to].lines;

			if (from == to || c->record[from].lines != lines)
				continue;
			for (uint32_t i = 0; i < lines; i++)
				memcpy(line_at(b, b->region, c->record[to].partition,
					       c->record[to].position + i),
				       line_at(b, b->sample->region, c->record[from].partition,
					       c->record[from].position + i),
				       NVJ_LINE_BYTES);
			count.displaced++;
			if (!recover(b, kind, to))
				violation(b, kind, to, "a record in another's place is accepted");
			memcpy(b->region, b->sample->region, b->sample->region_bytes);
		}
	}
}

static void all_bits(struct bench *b, unsigned kind)
{
	struct covered c = {.byte = calloc(1, b->sample->region_bytes), .sample = b->sample};

	cover(&c, &b->world);
	for (size_t bit = 0; bit < 8 * b->sample->region_bytes; bit++) {
		enum must must = c.byte[bit / 8];
		uint64_t refused = count.refused;

		/* Of what is not covered, each byte's one bit is enough. */
		if (must == MUST_NOTHING && bit % 8 != bit / 8 % 8)
			continue;
		b->region[bit / 8] ^= (uint8_t)(1u << bit % 8);
		count.bits++;
		if (recover(b, kind, bit)) {
			count.reported++;
		} else {
			count.harmless++;
			if (must != MUST_NOTHING)
				violation(b, kind, bit, "not reported");
		}
		if (must == MUST_SURVIVE && count.refused != refused)
			violation(b, kind, bit, "one of two copies, and the journal is lost");
		b->region[bit / 8] = b->sample->region[bit / 8];
	}
	displace(b, kind, &c);
	free(c.byte);
}

static void pairs(struct bench *b, unsigned kind, uint64_t wanted)
{
	struct random random = random_from(kind);

	for (uint64_t i = 0; i < wanted; i++) {
		/* Near each other as often as not, where a CRC could be fooled. */
		uint32_t bits = (uint32_t)(8 * b->sample->region_bytes);
		uint32_t one = random_below(&random, bits), other = random_below(&random, bits);

		if (i & 1)
			other = (one & ~511u) + random_below(&random, 512);
		/* Two copies damaged in the same place are two damages: reported, too. */
		b->region[one / 8] ^= (uint8_t)(1u << one % 8);
		b->region[other / 8] ^= (uint8_t)(1u << other % 8);
		count.pairs++;
		count.pairs_reported += recover(b, kind, one);
		b->region[one / 8] = b->sample->region[one / 8];
		b->region[other / 8] = b->sample->region[other / 8];
	}
}

int main(int argc, char **argv)
{
	const char *variant = getenv("NVJ_VARIANT");
	bool slow = variant != NULL && !strcmp(variant, "asan");
	uint64_t wanted = argc > 1 ? strtoull(argv[1], NULL, 0) : 20000;

	for (unsigned kind = 0; kind < (slow ? 2 : SAMPLE_KINDS); kind++) {
		struct sample sample;
		struct bench b = {.sample = &sample};

		sample_make(&sample, kind);
		b.region = aligned_alloc(4096, sample.region_bytes);
		b.disk = aligned_alloc(4096, (size_t)SAMPLE_BLOCKS * NVJ_BLOCK_BYTES);
		if (b.region == NULL || b.disk == NULL)
			return 2;
		memcpy(b.region, sample.region, sample.region_bytes);
		memcpy(b.disk, sample.disk, (size_t)SAMPLE_BLOCKS * NVJ_BLOCK_BYTES);
		world_begin(&b.world, b.region, sample.region_bytes, b.disk, SAMPLE_BLOCKS, 1);
		all_bits(&b, kind);
		pairs(&b, kind, wanted);
		world_end(&b.world);
		free(b.region);
		free(b.disk);
		sample_free(&sample);
	}
	printf("crash_bits: %llu bits flipped one by one: %llu reported, %llu without effect; %llu "
	       "pairs of bits: %llu reported; %llu records in others' places; none silently wrong: "
	       "%s\n",
	       (unsigned long long)count.bits, (unsigned long long)count.reported,
	       (unsigned long long)count.harmless, (unsigned long long)count.pairs,
	       (unsigned long long)count.pairs_reported, (unsigned long long)count.displaced,
	       violations ? "NO" : "yes");
	return violations != 0;
}
