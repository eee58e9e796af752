/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recovery carries home, from journals written by hand: committed records
 * in the order of the ring, and no others. Each case is checked first (which
 * must change nothing and count the same), recovered, and recovered again.
 */
#include "rest.h"

#define ALL NVJ_ALL_LINES

/* Checks, recovers, and recovers again: 0 each time; the report is of the first recovery. */
static struct nvj_report recover(struct rest *t)
{
	struct nvj_report check, first, again;

	rest_keep(t);
	expect(nvj_check(&t->region, &t->platform, &check) == 0);
	expect(rest_untouched(t));
	expect(nvj_recover(&t->region, &t->platform, &first) == 0);
	expect(first.findings == check.findings && first.records == check.records &&
	       first.revoked == check.revoked && first.transactions == check.transactions &&
	       first.uncommitted == check.uncommitted &&
	       first.journal_bytes == check.journal_bytes && first.clean == check.clean &&
	       first.committed_tid == check.committed_tid && check.blocks == 0);
	expect(t->dirty == 0);
	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, &again) == 0);
	expect(again.clean && again.records == 0 && again.blocks == 0 && again.findings == 0);
	expect(again.tail_tid == first.committed_tid);
	expect(rest_untouched(t));
	return first;
}

static void empty(void)
{
	struct rest *t = rest_formatted(3, 1024);
	struct nvj_report r = recover(t);

	expect(r.clean && r.tail_tid == 0 && r.committed_tid == 0 && r.journal_bytes == 0);
	expect(t->flushes == 0 && t->reads == 0);
	rest_free(t);
}

/* Lines, zeros, a whole block; two transactions, of which the later one wins. */
static void two_transactions(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct nvj_report r;

	rest_log(t, 1, NVJ_UPDATE, 10, 0x5, 0, 0xa1);
	rest_log(t, 1, NVJ_UPDATE, 11, 0xff, 0x0f, 0xb1);
	rest_log(t, 1, NVJ_DATA, 12, ALL, 0, 0xc1);
	rest_log(t, 1, NVJ_UPDATE, 14, ALL, ALL, 0);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	rest_log(t, 2, NVJ_UPDATE, 10, 0x4, 0, 0xa2);
	rest_seal(t, 2, NVJ_COMMIT, NULL, NULL);
	r = recover(t);

	expect(!r.clean && r.transactions == 2 && r.committed_tid == 2 && r.tail_tid == 0);
	expect(r.records == 5 && r.blocks == 4 && r.uncommitted == 0 && r.revoked == 0);
	/* 3 + 2 + 65 + 1 + 5 lines, headers included. */
	expect(r.journal_bytes == 76 * 64);
	expect(rest_line_is(t, 10, 0, 0xa1) && rest_line_old(t, 10, 1) &&
	       rest_line_is(t, 10, 2, 0xa2) && rest_line_old(t, 10, 3));
	for (unsigned line = 0; line < 64; line++) {
		if (line < 4)
			expect(rest_line_is(t, 11, line, 0));
		else if (line < 8)
			expect(rest_line_is(t, 11, line, 0xb1));
		else
			expect(rest_line_old(t, 11, line));
		expect(rest_line_is(t, 12, line, 0xc1) && rest_line_is(t, 14, line, 0));
		expect(rest_line_old(t, 13, line));
	}
	/* Whole blocks are not read; 10 and 11 are, in recovery alone. */
	expect(t->reads == 2);
	rest_free(t);
}

/* Records behind the last commit, and those of the next transaction before its high. */
static void not_committed(void)
{
	struct rest *t = rest_formatted(1, 1024);
	uint64_t low[1];
	struct nvj_report r;

	rest_log(t, 1, NVJ_UPDATE, 1, 1, 0, 0x11);
	low[0] = t->head[0];
	rest_log(t, 2, NVJ_UPDATE, 2, 1, 0, 0x22);
	rest_log(t, 1, NVJ_UPDATE, 3, 1, 0, 0x13);
	rest_seal(t, 1, NVJ_COMMIT, low, NULL);
	rest_log(t, 2, NVJ_UPDATE, 4, 1, 0, 0x24);
	rest_keep(t);
	r = recover(t);
	expect(r.records == 2 && r.uncommitted == 1 && r.committed_tid == 1);
	expect(rest_line_is(t, 1, 0, 0x11) && rest_line_is(t, 3, 0, 0x13));
	expect(rest_line_old(t, 2, 0) && rest_line_old(t, 4, 0));

	/*
	 * The same, but 2 commits after 1 is at home: its record before the
	 * tail's high is found, as reading begins at low.
	 */
	rest_seal(t, 2, NVJ_COMMIT, NULL, NULL);
	r = recover(t);
	expect(r.records == 2 && r.tail_tid == 1 && r.committed_tid == 2);
	expect(rest_line_is(t, 2, 0, 0x22) && rest_line_is(t, 4, 0, 0x24));
	rest_free(t);
}

/* An anchor in the place of a transaction that did not commit: its records never count. */
static void anchor(void)
{
	struct rest *t = rest_formatted(1, 1024);
	uint64_t low[1], high[1];
	struct nvj_report r;

	low[0] = t->head[0];
	rest_log(t, 2, NVJ_UPDATE, 2, 1, 0, 0x22);
	rest_log(t, 1, NVJ_UPDATE, 1, 1, 0, 0x11);
	rest_seal(t, 1, NVJ_COMMIT, low, NULL);
	/* A crash; the next run, without a checkpoint: */
	high[0] = t->head[0];
	rest_seal(t, 2, NVJ_ANCHOR, high, high);
	rest_log(t, 3, NVJ_UPDATE, 3, 1, 0, 0x33);
	rest_seal(t, 3, NVJ_COMMIT, NULL, NULL);
	r = recover(t);
	expect(r.records == 2 && r.uncommitted == 1 && r.transactions == 2);
	expect(rest_line_is(t, 1, 0, 0x11) && rest_line_is(t, 3, 0, 0x33));
	expect(rest_line_old(t, 2, 0));
	rest_free(t);
}

/* MERGED counts with the next, and only with it. */
static void merged(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_recovered end;
	struct nvj_report r;
	uint64_t committed;

	rest_log(t, 1, NVJ_UPDATE, 1, 1, 0, 0x11);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	committed = t->head[0];
	rest_log(t, 2, NVJ_UPDATE, 2, 1, 0, 0x22);
	rest_log(t, 3, NVJ_UPDATE, 3, 1, 0, 0x33);
	rest_seal(t, 2, NVJ_MERGED, NULL, NULL);
	rest_keep(t);

	/* A crash here: back to 1, and the anchor is 3, not 2. */
	expect(nvj_recover_into(&t->region, &t->platform, NULL, &r, &end) == 0);
	expect(r.committed_tid == 1 && r.records == 1 && r.uncommitted == 0);
	expect(end.last_tid == 1 && end.sealed_tid == 2 && end.high[0] == committed);
	expect(rest_line_old(t, 2, 0));
	r = recover(t);
	rest_seal(t, 3, NVJ_ANCHOR, end.high, end.high);
	r = recover(t);
	expect(r.committed_tid == 3 && r.transactions == 0 && rest_line_old(t, 2, 0));

	/* No crash: 3 takes 2 along. */
	rest_back(t);
	memcpy(t->memory, t->copy, t->region.size_bytes);
	rest_free(t);

	t = rest_formatted(1, 1024);
	rest_log(t, 1, NVJ_UPDATE, 2, 1, 0, 0x22);
	rest_log(t, 2, NVJ_UPDATE, 3, 1, 0, 0x33);
	rest_seal(t, 1, NVJ_MERGED, NULL, NULL);
	rest_seal(t, 2, NVJ_MERGED, NULL, NULL);
	rest_log(t, 3, NVJ_UPDATE, 4, 1, 0, 0x44);
	rest_seal(t, 3, NVJ_COMMIT, NULL, NULL);
	r = recover(t);
	expect(r.transactions == 3 && r.records == 3);
	expect(rest_line_is(t, 2, 0, 0x22) && rest_line_is(t, 3, 0, 0x33));
	rest_free(t);
}

static void revoke(void)
{
	struct rest *t = rest_formatted(2, 1024);
	uint64_t low[2];
	struct nvj_report r;

	rest_log(t, 1, NVJ_UPDATE, 4, 1, 0, 0x41);
	rest_log(t, 1, NVJ_UPDATE, 6, 1, 0, 0x61);
	rest_log(t, 1, NVJ_UPDATE, 8, 1, 0, 0x81);
	rest_log(t, 1, NVJ_UPDATE, 10, 1, 0, 0xa1);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	/*
	 * 4 is freed; 6 is freed and used again; 8 and 10 are freed by one that
	 * does not commit, before the commit's high and after it.
	 */
	rest_log(t, 2, NVJ_REVOKE, 4, 0, 0, 0);
	rest_log(t, 2, NVJ_REVOKE, 6, 0, 0, 0);
	memcpy(low, t->head, sizeof(low));
	rest_log(t, 3, NVJ_REVOKE, 8, 0, 0, 0);
	rest_log(t, 2, NVJ_UPDATE, 6, 2, 0, 0x62);
	rest_seal(t, 2, NVJ_COMMIT, low, NULL);
	rest_log(t, 3, NVJ_REVOKE, 10, 0, 0, 0);
	r = recover(t);
	expect(r.records == 3 && r.revoked == 2 && r.blocks == 3 && r.uncommitted == 1);
	for (unsigned line = 0; line < 64; line++)
		expect(rest_line_old(t, 4, line));
	expect(rest_line_old(t, 6, 0) && rest_line_is(t, 6, 1, 0x62));
	expect(rest_line_is(t, 8, 0, 0x81) && rest_line_is(t, 10, 0, 0xa1));
	rest_free(t);
}

/* Many laps of both rings: records and slots over the end, the tail moved now and then. */
static void laps(void)
{
	struct rest *t = rest_formatted(3, 1024);
	uint8_t want[REST_BLOCKS];
	uint32_t seed = 7;

	memset(want, 0, sizeof(want));
	for (uint64_t tid = 1; tid < 400; tid++) {
		for (unsigned i = 0; i < 12; i++) {
			uint64_t block;

			seed = seed * 1664525 + 1013904223;
			block = (seed >> 16) % 200;
			want[block] = (uint8_t)(1 + tid % 250);
			rest_log(t, tid, NVJ_UPDATE, block, UINT64_C(0xfff) << (seed >> 8) % 40 | 1,
				 0, want[block]);
		}
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
		if (tid % 7 == 0)
			expect(recover(t).transactions == 7);
	}
	recover(t);
	expect(t->head[0] > 10 * 1024);
	for (unsigned block = 0; block < 200; block++)
		if (want[block])
			expect(rest_line_is(t, block, 0, want[block]));
	rest_free(t);
}

/*
 * Memory for a few images only: the rings are read again for each part of the blocks,
 * and each block goes home once.
 */
static void more_blocks_than_images(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct nvj_report r, little;

	for (unsigned n = 0; n < 64; n++)
		rest_log(t, 1, NVJ_UPDATE, n % 12 * 2, UINT64_C(1) << n, 0, (uint8_t)(100 + n));
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	rest_keep(t);
	/* 32 images, halved until they fit: 4. */
	t->largest = 5 * NVJ_BLOCK_BYTES;
	expect(nvj_recover(&t->region, &t->platform, &little) == 0);
	expect(little.records == 64 && little.blocks == 12 && t->reads >= 12);
	for (unsigned n = 0; n < 64; n++)
		expect(rest_line_is(t, n % 12 * 2, n, (uint8_t)(100 + n)));

	rest_back(t);
	t->largest = 0;
	t->reads = 0;
	r = recover(t);
	expect(r.records == 64 && r.blocks == 12 && t->reads == 12);
	for (unsigned n = 0; n < 64; n++)
		expect(rest_line_is(t, n % 12 * 2, n, (uint8_t)(100 + n)));
	rest_free(t);
}

/* The platform has no memory, or the disk fails: an error, no lost memory, and it can be done
 * again. */
static void failures(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct nvj_report r;
	unsigned failed = 0;

	for (unsigned b = 0; b < 120; b++)
		rest_log(t, 1, NVJ_UPDATE, b, 3, 0, 0x51);
	rest_log(t, 1, NVJ_REVOKE, 7, 0, 0, 0);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	rest_keep(t);
	for (unsigned kind = 0; kind < 4; kind++)
		for (unsigned n = 1; n < 150; n++) {
			int error;

			rest_back(t);
			t->allocations_until_error = kind == 0 ? n : 0;
			t->reads_until_error = kind == 1 ? n : 0;
			t->writes_until_error = kind == 2 ? n : 0;
			t->flushes_until_error = kind == 3 ? n : 0;
			error = nvj_recover(&t->region, &t->platform, &r);
			t->allocations_until_error = t->reads_until_error = 0;
			t->writes_until_error = t->flushes_until_error = 0;
			expect(t->allocated == 0 && t->in_flight[0] == 0 && t->in_flight[1] == 0);
			expect(error == 0 || error == (kind ? NVJ_EIO : NVJ_ENOMEM));
			if (error) {
				failed++;
				/* Nothing is at home for good: the tail has not moved. */
				expect(!memcmp(t->memory, t->copy, t->region.size_bytes));
				expect(nvj_recover(&t->region, &t->platform, &r) == 0);
			}
			for (unsigned b = 0; b < 120; b++)
				expect(b == 7 ? rest_line_old(t, b, 0)
					      : rest_line_is(t, b, 1, 0x51));
		}
	/* 119 reads, 119 writes, one flush, and some pieces of memory. */
	expect(failed > 119 + 119 + 1 + 4);
	rest_free(t);
}

struct seen {
	unsigned records, committed;
	int stop_at;
};

static int see(void *context, uint32_t partition, const struct nvj_disk_record *record,
	       const void *lines, bool committed)
{
	struct seen *seen = context;

	expect(record->block % 2 == partition);
	if (record->lines > 1)
		expect(((const uint8_t *)lines)[0] == (record->tid == 1 ? 0x11 : 0x22));
	seen->records++;
	seen->committed += committed;
	return seen->stop_at == (int)seen->records ? 77 : 0;
}

static void walk(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct seen seen = {0};
	uint64_t low[2];

	rest_log(t, 1, NVJ_UPDATE, 1, 1, 0, 0x11);
	memcpy(low, t->head, sizeof(low));
	rest_log(t, 2, NVJ_UPDATE, 2, 1, 0, 0x22);
	rest_log(t, 1, NVJ_UPDATE, 3, 1, 0, 0x11);
	rest_seal(t, 1, NVJ_COMMIT, low, NULL);
	rest_keep(t);
	expect(nvj_walk(&t->region, &t->platform, see, &seen) == 0);
	expect(seen.records == 3 && seen.committed == 2);
	seen = (struct seen){.stop_at = 2};
	expect(nvj_walk(&t->region, &t->platform, see, &seen) == 77);
	/* A damaged record ends its own partition's walk. */
	((uint8_t *)nvj_line_at(&t->g, 0, 0))[30] ^= 1;
	seen = (struct seen){0};
	expect(nvj_walk(&t->region, &t->platform, see, &seen) == NVJ_EUCLEAN);
	expect(seen.records == 2 && seen.committed == 2);
	rest_free(t);
}

int main(void)
{
	empty();
	two_transactions();
	not_committed();
	anchor();
	merged();
	revoke();
	laps();
	more_blocks_than_images();
	failures();
	walk();
	return 0;
}
