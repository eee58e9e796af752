/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every single bit of superblocks, tails, commit ring and records is flipped in
 * turn. That may never change the written blocks silently: either the outcome is
 * the same, or the result is NVJ_EUCLEAN with the place, and nothing was written.
 * Damage of one of two copies is repaired. Then several bits at random.
 */
#include "rest.h"

#define BLOCKS 24u /* that the journal knows */

static uint8_t good_disk[BLOCKS][NVJ_BLOCK_BYTES];
static struct nvj_report good;

/* Committed, merged, revoked, at home and not committed; over the end of ring and slots. */
static struct rest *journal(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct nvj_report r;
	uint64_t low[2];

	t->head[0] = t->head[1] = 1000;
	for (uint64_t tid = 1; tid <= 10; tid++)
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
	nvj_tail_write(&t->g, t->region.persistence, 10);

	rest_log(t, 11, NVJ_UPDATE, 3, 0x7, 0x2, 0x31);
	rest_log(t, 11, NVJ_UPDATE, 4, 0x8000000000000001u, 0, 0x41);
	rest_log(t, 11, NVJ_DATA, 5, 0x30, 0, 0x51);
	rest_seal(t, 11, NVJ_COMMIT, NULL, NULL);
	expect(nvj_recover(&t->region, &t->platform, &r) == 0);
	/* From here on not at home. */
	rest_log(t, 12, NVJ_UPDATE, 6, 0xff, 0xf0, 0x61);
	rest_log(t, 12, NVJ_UPDATE, 7, NVJ_ALL_LINES, ~UINT64_C(0x3ff), 0x71);
	rest_log(t, 12, NVJ_UPDATE, 8, 0x1, 0, 0x81);
	rest_seal(t, 12, NVJ_COMMIT, NULL, NULL);
	rest_log(t, 13, NVJ_REVOKE, 8, 0, 0, 0);
	rest_seal(t, 13, NVJ_MERGED, NULL, NULL);
	memcpy(low, t->head, sizeof(low));
	rest_log(t, 15, NVJ_UPDATE, 10, 0x3, 0, 0xa1);
	rest_log(t, 14, NVJ_UPDATE, 6, 0x1, 0, 0x62);
	for (uint64_t block = 0; block < 22; block++)
		rest_log(t, 14, NVJ_DATA, block, 0x100, 0, 0xdd);
	rest_seal(t, 14, NVJ_COMMIT, low, NULL);
	rest_log(t, 15, NVJ_UPDATE, 11, 0x3, 0, 0xb1);
	/* The next two laps' slots: 15 and more, of which 16 and on have old seals. */
	expect(t->head[0] > 1024 && t->head[1] > 1024);
	return t;
}

/* Only these blocks are ever written: quicker than the whole disk. */
static void back(struct rest *t)
{
	memcpy(t->disk, t->disk_copy, sizeof(good_disk));
}

/* Flips, looks at what is said and done, and makes all as it was. *reported: EUCLEAN. */
static void look(struct rest *t, bool *reported, struct nvj_report *r)
{
	struct nvj_report check;
	int checked = nvj_check(&t->region, &t->platform, &check);
	uint64_t writes = t->writes;
	int error = nvj_recover(&t->region, &t->platform, r);

	expect(error == checked && check.findings == r->findings);
	expect(error == 0 || error == NVJ_EUCLEAN);
	*reported = error;
	if (error) {
		expect(r->findings > 0 && t->writes == writes);
		expect(!memcmp(t->disk, t->disk_copy, sizeof(good_disk)));
	} else {
		expect(!memcmp(t->disk, good_disk, sizeof(good_disk)));
		expect(r->records == good.records && r->revoked == good.revoked &&
		       r->committed_tid == good.committed_tid &&
		       r->transactions == good.transactions);
	}
}

/* The byte is one of the slot or of the record, at most 65 lines, that was named. */
static bool is_part(const struct rest *t, uint64_t at, const struct nvj_finding *f)
{
	if (f->kind == NVJ_FOUND_COMMIT)
		return f->offset <= at && at < f->offset + 64;
	for (unsigned line = 0; line < 65; line++)
		if (at / 64 * 64 == nvj_offset_of_line(&t->g, f->partition, f->position + line))
			return true;
	return false;
}

enum must { BE_REPORTED, BE_MENDED, BE_EITHER };

/* Each bit of these bytes; kind: of the one finding there must be. */
static unsigned flip_all(struct rest *t, uint64_t from, uint64_t bytes, enum must must,
			 enum nvj_finding_kind kind)
{
	for (uint64_t bit = 0; bit < bytes * 8; bit++) {
		uint64_t at = from + bit / 8;
		struct nvj_report r;
		bool reported;

		t->memory[at] ^= (uint8_t)(1u << bit % 8);
		look(t, &reported, &r);
		expect(t->flushes || reported);
		if (must == BE_REPORTED) {
			expect(reported && r.findings == 1 && r.finding[0].kind == kind);
			expect(is_part(t, at, &r.finding[0]));
			t->memory[at] ^= (uint8_t)(1u << bit % 8);
			expect(!memcmp(t->memory, t->copy, t->region.size_bytes));
		} else if (must == BE_MENDED) {
			expect(!reported && r.findings == 1 && r.finding[0].kind == kind);
			expect(r.finding[0].offset <= at && at - r.finding[0].offset < 128);
			/* It is made good, and then nothing is found any more. */
			expect(nvj_check(&t->region, &t->platform, &r) == 0);
			expect(r.findings == 0 && r.clean);
		}
		back(t);
		memcpy(t->memory, t->copy, t->region.size_bytes);
	}
	return (unsigned)bytes * 8;
}

/* Of the ring's lines between two positions. */
static unsigned flip_ring(struct rest *t, uint32_t partition, uint64_t from, uint64_t to)
{
	unsigned flips = 0;

	for (; from < to; from++)
		flips += flip_all(t, nvj_offset_of_line(&t->g, partition, from), 64, BE_REPORTED,
				  NVJ_FOUND_RECORD);
	return flips;
}

static uint64_t random64(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Two to five bits, in what is read, near to each other or not. */
static void several(struct rest *t, unsigned rounds)
{
	unsigned reported_count = 0;

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t near = random64();

		for (unsigned n = 0; n < 2 + i % 4; n++) {
			uint64_t where = i & 4 ? random64() : near + random64() % 64;
			static const uint64_t areas[][2] = {
				{NVJ_SUPER_OFFSET, 128},       {NVJ_SUPER_COPY_OFFSET, 128},
				{NVJ_TAIL_OFFSET, 8},          {NVJ_TAIL_COPY_OFFSET, 8},
				{NVJ_COMMITS_OFFSET, 16 * 64},
			};
			unsigned area = (unsigned)(near >> 32) % 7;
			uint64_t at;

			if (area < 5)
				at = areas[area][0] + where % areas[area][1];
			else
				at = nvj_offset_of_line(&t->g, area - 5, 1000 + where / 64 % 60) +
				     where % 64;
			t->memory[at] ^= (uint8_t)(1u << random64() % 8);
		}
		struct nvj_report r;
		bool reported;

		look(t, &reported, &r);
		reported_count += reported;
		back(t);
		memcpy(t->memory, t->copy, t->region.size_bytes);
	}
	printf("%u of %u with several bits: reported\n", reported_count, rounds);
	expect(reported_count > rounds / 4);
}

int main(void)
{
	struct rest *t = journal();
	uint64_t low[2], high[2];
	unsigned flips = 0;
	struct nvj_commit_buffer b;

	expect(nvj_commit_read(&t->g, 11, &b) == NVJ_SLOT_SEALED);
	for (unsigned i = 0; i < 2; i++)
		low[i] = b.at[i].low;
	expect(nvj_commit_read(&t->g, 14, &b) == NVJ_SLOT_SEALED);
	for (unsigned i = 0; i < 2; i++)
		high[i] = b.at[i].high;
	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, &good) == 0);
	expect(good.findings == 0 && good.records == 25 && good.revoked == 1 &&
	       good.uncommitted == 1 && good.transactions == 3);
	memcpy(good_disk, t->disk, sizeof(good_disk));
	memcpy(t->memory, t->copy, t->region.size_bytes);
	back(t);
	expect(!memcmp(&t->disk[BLOCKS], &t->disk_copy[BLOCKS],
		       sizeof(t->disk) - sizeof(good_disk)));

	flips += flip_all(t, NVJ_SUPER_OFFSET, 128, BE_MENDED, NVJ_FOUND_SUPER);
	flips += flip_all(t, NVJ_SUPER_COPY_OFFSET, 128, BE_MENDED, NVJ_FOUND_SUPER);
	flips += flip_all(t, 128, 64, BE_EITHER, 0);
	flips += flip_all(t, NVJ_TAIL_OFFSET, 8, BE_MENDED, NVJ_FOUND_TAIL);
	flips += flip_all(t, NVJ_TAIL_COPY_OFFSET, 8, BE_MENDED, NVJ_FOUND_TAIL);
	/* Tail's own slot to the last one. */
	for (uint64_t tid = 11; tid <= 14; tid++)
		flips += flip_all(t, nvj_offset_of_commit(&t->g, tid), 64, BE_REPORTED,
				  NVJ_FOUND_COMMIT);
	/* The others hold nothing that counts, but their seals are looked at. */
	flips += flip_all(t, NVJ_COMMITS_OFFSET, 16 * 64, BE_EITHER, 0);
	for (uint32_t i = 0; i < 2; i++)
		flips += flip_ring(t, i, low[i], high[i]);
	/* Behind the last commit nothing counts. */
	flips += flip_all(t, nvj_offset_of_line(&t->g, 1, high[1]), 3 * 64, BE_EITHER, 0);
	printf("%u single bits\n", flips);
	expect(flips > 30000);
	several(t, 20000);
	rest_free(t);
	return 0;
}
