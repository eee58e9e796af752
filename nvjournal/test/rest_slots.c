/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot of the commit ring: each of its states, and each way out of order. What
 * a crash can leave is recovered, anything else is named (docs/nvjournal-format.md,
 * the state table). And the words that tell one from the other are far enough apart.
 */
#include "rest.h"

static enum nvj_slot_state state(const struct rest *t, uint64_t tid)
{
	struct nvj_commit_buffer b;

	return nvj_commit_read(&t->g, tid, &b);
}

static void states(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct nvj_commit_buffer b, read;
	uint64_t *seal5 = &nvj_commit_at(&t->g, 5)->seal;

	expect(state(t, 0) == NVJ_SLOT_SEALED);
	for (uint64_t tid = 1; tid < 16; tid++)
		expect(state(t, tid) == NVJ_SLOT_NOT_YET);
	/* The slot of 0, asked for 16: sealed for the lap before, so not yet. */
	expect(state(t, 16) == NVJ_SLOT_NOT_YET);
	/* For 32 it is of two laps ago. */
	expect(state(t, 32) == NVJ_SLOT_DAMAGED);

	nvj_commit_begin(&t->g, &b, 5, NVJ_COMMIT, 99);
	b.at[0].low = 3;
	b.at[0].high = 4;
	b.at[1].low = 5;
	b.at[1].high = 6;
	/* The body alone, on the first lap and on the second: not yet. */
	nvj_commit_write_body(&t->g, t->region.persistence, &b);
	expect(*seal5 == 0 && state(t, 5) == NVJ_SLOT_NOT_YET);
	nvj_commit_write_seal(&t->g, t->region.persistence, &b);
	expect(nvj_commit_read(&t->g, 5, &read) == NVJ_SLOT_SEALED);
	expect(read.tid == 5 && read.kind == NVJ_COMMIT && read.partitions == 2 &&
	       read.time_ns == 99 && read.at[0].low == 3 && read.at[1].high == 6);
	expect(state(t, 21) == NVJ_SLOT_NOT_YET);
	nvj_commit_begin(&t->g, &b, 21, NVJ_MERGED, 100);
	nvj_commit_write_body(&t->g, t->region.persistence, &b);
	expect(state(t, 21) == NVJ_SLOT_NOT_YET);
	nvj_commit_write_seal(&t->g, t->region.persistence, &b);
	expect(state(t, 21) == NVJ_SLOT_SEALED && state(t, 5) == NVJ_SLOT_DAMAGED &&
	       state(t, 37) == NVJ_SLOT_NOT_YET);

	/* Half a seal of either kind, and none where there must be one. */
	*seal5 ^= 1;
	expect(state(t, 21) == NVJ_SLOT_DAMAGED);
	*seal5 ^= 1 | UINT64_C(1) << 40;
	expect(state(t, 21) == NVJ_SLOT_DAMAGED && state(t, 37) == NVJ_SLOT_DAMAGED);
	*seal5 = 0;
	expect(state(t, 21) == NVJ_SLOT_DAMAGED);

	/* Rightly sealed, but not what can be: a kind, a number of partitions. */
	nvj_commit_begin(&t->g, &b, 5, (enum nvj_commit_kind)4, 0);
	nvj_commit_write_body(&t->g, t->region.persistence, &b);
	nvj_commit_write_seal(&t->g, t->region.persistence, &b);
	expect(state(t, 5) == NVJ_SLOT_DAMAGED);
	nvj_commit_begin(&t->g, &b, 5, NVJ_COMMIT, 0);
	b.partitions = 3;
	nvj_commit_write_body(&t->g, t->region.persistence, &b);
	nvj_commit_write_seal(&t->g, t->region.persistence, &b);
	expect(state(t, 5) == NVJ_SLOT_DAMAGED);
	rest_free(t);
}

/* nvj_check finds exactly one thing, a COMMIT, of this transaction, at its slot. */
static void found(struct rest *t, uint64_t tid)
{
	struct nvj_report r;

	rest_keep(t);
	expect(nvj_check(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.findings == 1 && r.finding[0].kind == NVJ_FOUND_COMMIT);
	expect(r.finding[0].position == tid);
	expect(r.finding[0].offset == nvj_offset_of_commit(&t->g, tid));
	expect(nvj_recover(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(rest_untouched(t));
}

static struct rest *five(void)
{
	struct rest *t = rest_formatted(2, 1024);

	for (uint64_t tid = 1; tid <= 5; tid++) {
		rest_log(t, tid, NVJ_UPDATE, tid, 1, 0, (uint8_t)tid);
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
	}
	return t;
}

static void order(void)
{
	for (uint64_t tid = 0; tid <= 5; tid++) {
		struct rest *t = five();
		struct nvj_report r;

		/* Its seal is lost: a gap, but for the last one, which may never have been. */
		nvj_commit_at(&t->g, tid)->seal = 0;
		if (tid < 5) {
			found(t, tid);
		} else {
			expect(nvj_recover(&t->region, &t->platform, &r) == 0);
			expect(r.committed_tid == 4);
		}
		rest_free(t);
	}
	/* A slot far behind that is neither. */
	struct rest *t = five();

	nvj_commit_at(&t->g, 15)->seal = 1;
	found(t, 15);
	rest_free(t);
	/* The tail names a transaction that ends nothing. */
	t = five();
	rest_seal(t, 6, NVJ_MERGED, NULL, NULL);
	rest_seal(t, 7, NVJ_COMMIT, NULL, NULL);
	nvj_tail_write(&t->g, t->region.persistence, 6);
	found(t, 6);
	/* ... or that was never there. */
	nvj_tail_write(&t->g, t->region.persistence, 9);
	found(t, 9);
	rest_free(t);
}

static void bounds(void)
{
	const struct {
		uint64_t low, high;
	} bad[] = {
		{20, 19},                /* the wrong way round */
		{0, 30},                 /* low goes back */
		{5, 5},                  /* both do */
		{10, 1025},              /* more than a ring from the tail */
		{1025, 1025},            /* the same */
		{10, UINT64_C(1) << 63}, /* more than a life */
		{~UINT64_C(0), ~UINT64_C(0)},
	};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]) * 2; i++) {
		struct rest *t = five();
		uint64_t low[2] = {t->head[0], bad[i / 2].low};
		uint64_t high[2] = {t->head[0], bad[i / 2].high};

		expect(t->head[1] == 6);
		rest_seal(t, 6, i % 2 ? NVJ_ANCHOR : NVJ_COMMIT, low, high);
		found(t, 6);
		rest_free(t);
	}

	/* The tail's own, which has none before it: only a life is too long. */
	struct rest *t = rest_formatted(1, 1024);
	uint64_t far = UINT64_C(1) << 55, too_far = far + 1;
	struct nvj_report r;

	rest_seal(t, 0, NVJ_ANCHOR, &far, &far);
	expect(nvj_check(&t->region, &t->platform, &r) == 0);
	rest_seal(t, 0, NVJ_ANCHOR, &too_far, &too_far);
	found(t, 0);
	rest_free(t);
}

/* A record that is whole, but reaches over the high that the commit says. */
static void high_within_a_record(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_report r;
	uint64_t high;

	rest_log(t, 1, NVJ_UPDATE, 1, 1, 0, 0x11);
	rest_log(t, 1, NVJ_UPDATE, 2, 7, 0, 0x12);
	high = t->head[0] - 1;
	rest_seal(t, 1, NVJ_COMMIT, &high, &high);
	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.findings == 1 && r.finding[0].kind == NVJ_FOUND_RECORD &&
	       r.finding[0].position == 2 && rest_untouched(t));
	rest_free(t);
}

/*
 * A record before high of a transaction that could not have started yet. An engine
 * at fault can make it; the next anchor would not be over it.
 */
static void ahead_of_its_time(void)
{
	for (uint64_t tid = 2; tid <= 3; tid++) {
		struct rest *t = rest_formatted(1, 1024);
		struct nvj_report r;
		uint64_t low = 0;

		rest_log(t, tid, NVJ_UPDATE, 1, 1, 0, 0x11);
		rest_seal(t, 1, NVJ_COMMIT, &low, NULL);
		expect(nvj_check(&t->region, &t->platform, &r) == (tid == 2 ? 0 : NVJ_EUCLEAN));
		expect(tid == 2 ? r.uncommitted == 1 : r.finding[0].kind == NVJ_FOUND_RECORD);
		rest_free(t);
	}
}

/* All slots are in use, the tail's own the oldest: nothing is taken for the next lap. */
static void full(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_report r;

	for (uint64_t tid = 1; tid < 16; tid++)
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
	expect(nvj_check(&t->region, &t->platform, &r) == 0);
	expect(r.committed_tid == 15 && r.transactions == 15);
	nvj_tail_write(&t->g, t->region.persistence, 3);
	for (uint64_t tid = 16; tid < 19; tid++)
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
	expect(nvj_recover(&t->region, &t->platform, &r) == 0);
	expect(r.committed_tid == 18 && r.transactions == 15);
	rest_free(t);
}

/*
 * No single flipped bit makes the seal of a transaction that of its slot's last
 * lap, whatever the size of the ring: tid and tid - commits differ in a run of
 * bits, and the CRC of such a run has at least three.
 */
static void seals_are_apart(void)
{
	unsigned least = 32;

	for (unsigned first = 4; first <= 16; first++)
		for (unsigned last = first; last < 48; last++) {
			uint64_t run = (UINT64_C(2) << last) - (UINT64_C(1) << first);
			unsigned bits = nvj_popcount(nvj_crc32c(0, &run, 8));

			if (bits < least)
				least = bits;
		}
	printf("seals of one slot differ in %u bits or more\n", least);
	expect(least >= 3);
}

/* No one or two flipped bits make a tail word another's. */
static void tails_are_apart(void)
{
	uint64_t zero = nvj_tail_encode(0, 0), tid;

	expect(zero == 0); /* linear: what holds for 0 and seed 0 holds for all */
	for (unsigned a = 0; a < 64; a++) {
		expect(!nvj_tail_decode(0, UINT64_C(1) << a, &tid));
		for (unsigned b = a + 1; b < 64; b++)
			expect(!nvj_tail_decode(0, UINT64_C(1) << a | UINT64_C(1) << b, &tid));
	}
}

static void tail_copies(void)
{
	struct rest *t = rest_formatted(1, 1024);
	unsigned damaged;
	uint64_t tid, word;

	for (uint64_t n = 0; n <= NVJ_MAX_TID; n = n * 5 + 1) {
		word = nvj_tail_encode(t->g.seed, n);
		expect(nvj_tail_decode(t->g.seed, word, &tid) && tid == n);
		expect(!nvj_tail_decode(t->g.seed + 1, word, &tid));
	}
	nvj_tail_write(&t->g, t->region.persistence, 7);
	expect(nvj_tail_read(&t->g, &tid, &damaged) && tid == 7 && !damaged);
	for (unsigned copy = 0; copy < 2; copy++) {
		nvj_tail_write(&t->g, t->region.persistence, 7);
		/* Moved in one copy: the newer counts, and neither is damaged. */
		*nvj_tail_at(&t->g, copy) = nvj_tail_encode(t->g.seed, 9);
		expect(nvj_tail_read(&t->g, &tid, &damaged) && tid == 9 && !damaged);
		*nvj_tail_at(&t->g, copy) ^= 4;
		expect(nvj_tail_read(&t->g, &tid, &damaged) && tid == 7 && damaged == 1u << copy);
	}
	*nvj_tail_at(&t->g, 0) ^= 2;
	expect(!nvj_tail_read(&t->g, &tid, &damaged) && damaged == 3);
	rest_free(t);
}

int main(void)
{
	states();
	order();
	bounds();
	high_within_a_record();
	ahead_of_its_time();
	full();
	seals_are_apart();
	tails_are_apart();
	tail_copies();
	return 0;
}
