/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records that are placed by processor: those of a block are in any ring, in any order
 * there, and replay follows their sequence numbers. The same for a block's own ring,
 * and, with the order of the ring, for a region of format version 1. Recovery reads
 * records of other partitions' blocks only where there was no memory for an index.
 */
#include "rest.h"

#define PARTITIONS 3u
#define BLOCKS 24u
#define RECORDS 60u
#define TRANSACTIONS 4u

static uint64_t random64(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* In the order of the changes. */
struct change {
	uint64_t tid, block, mask, zeros;
	enum nvj_record_kind kind;
	uint8_t value;
	bool placed;
};

enum how { BY_CPU, BY_BLOCK, VERSION_1 };

static void make_changes(struct change *change)
{
	for (unsigned n = 0; n < RECORDS; n++) {
		struct change *c = &change[n];

		/* Some are of the next transaction, which runs meanwhile. */
		*c = (struct change){.tid = 1 + n * TRANSACTIONS / RECORDS + random64() % 2,
				     .block = random64() % BLOCKS,
				     .kind = random64() % 8 ? NVJ_UPDATE : NVJ_REVOKE,
				     .value = (uint8_t)(1 + n)};
		/* A block's transactions rise with its changes, as merging makes them. */
		for (unsigned k = 0; k < n; k++)
			if (change[k].block == c->block && change[k].tid > c->tid)
				c->tid = change[k].tid;
		if (c->kind == NVJ_UPDATE) {
			c->mask = random64() & random64();
			c->mask = c->mask && random64() % 4 ? c->mask : NVJ_ALL_LINES;
			c->zeros = c->mask & random64() & random64();
		}
	}
}

/* Places the changes of transactions up to tid: in the order of the changes, or not. */
static void place(struct rest *t, struct change *change, uint64_t tid, enum how how)
{
	for (unsigned left = RECORDS; left > 0;) {
		unsigned n = how == VERSION_1 ? RECORDS - left : (unsigned)(random64() % RECORDS);
		struct change *c = &change[n];
		uint32_t ring = how == BY_CPU ? (uint32_t)(random64() % PARTITIONS)
					      : (uint32_t)(c->block % PARTITIONS);
		bool all = true;

		left -= how == VERSION_1;
		if (!c->placed && c->tid <= tid) {
			rest_log_in(t, ring, how == VERSION_1 ? 0 : n + 1, c->tid, c->kind,
				    c->block, c->mask, c->zeros, c->value);
			c->placed = true;
		}
		for (unsigned k = 0; k < RECORDS; k++)
			all = all && (change[k].placed || change[k].tid > tid);
		if (all)
			return;
	}
}

/* The lines that a block has after the committed changes. */
static void expect_block(const struct rest *t, const struct change *change, uint64_t block)
{
	unsigned first = 0;

	for (unsigned n = 0; n < RECORDS; n++)
		if (change[n].block == block && change[n].tid <= TRANSACTIONS &&
		    change[n].kind == NVJ_REVOKE)
			first = n + 1;
	for (unsigned line = 0; line < NVJ_BLOCK_LINES; line++) {
		const struct change *last = NULL;

		for (unsigned n = first; n < RECORDS; n++)
			if (change[n].block == block && change[n].tid <= TRANSACTIONS &&
			    change[n].mask >> line & 1)
				last = &change[n];
		if (!last)
			expect(rest_line_old(t, block, line));
		else
			expect(rest_line_is(t, block, line,
					    last->zeros >> line & 1 ? 0 : last->value));
	}
}

static void replays(enum how how, bool little_memory)
{
	struct rest *t = rest_formatted(PARTITIONS, 8192);
	struct change change[RECORDS];
	struct nvj_disk_super super;
	struct nvj_report r;

	if (how == BY_CPU)
		rest_place_by_cpu(t);
	if (how == VERSION_1)
		rest_make_old(t);
	make_changes(change);
	for (uint64_t tid = 1; tid <= TRANSACTIONS; tid++) {
		uint64_t low[PARTITIONS] = {0};

		if (how != VERSION_1) {
			memcpy(low, t->head, sizeof(low));
			place(t, change, tid, how);
		} else if (tid == TRANSACTIONS) {
			/* All in the order of the changes, whatever their transactions. */
			place(t, change, tid + 1, how);
		}
		rest_seal(t, tid, NVJ_COMMIT, low, NULL);
	}
	if (little_memory)
		t->largest = 2 * NVJ_BLOCK_BYTES;
	expect(nvj_check(&t->region, &t->platform, &r) == 0 && r.transactions == TRANSACTIONS);
	expect(nvj_recover(&t->region, &t->platform, &r) == 0 && r.findings == 0);
	for (uint64_t block = 0; block < BLOCKS; block++)
		expect_block(t, change, block);
	expect(nvj_read_super(&t->region, &super) == 0 && super.version == NVJ_FORMAT_VERSION);
	expect(super.placement == (how == BY_CPU ? NVJ_PLACE_CPU : NVJ_PLACE_BLOCK));
	/* Nothing is left, and nothing changes. */
	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, &r) == 0 && r.clean && r.records == 0);
	expect(rest_untouched(t));
	rest_free(t);
}

#define MANY 4600u

/* Two rings: seven of eight records are in the first one, whose index needs two pieces. */
static struct rest *many_records(uint8_t value[BLOCKS][NVJ_BLOCK_LINES])
{
	struct rest *t = rest_formatted(2, 8192);
	const uint64_t low[2] = {0};

	rest_place_by_cpu(t);
	memset(value, 0, BLOCKS * NVJ_BLOCK_LINES);
	for (unsigned n = 0; n < MANY; n++) {
		uint64_t block = n % BLOCKS, line = n / BLOCKS % NVJ_BLOCK_LINES;

		value[block][line] = (uint8_t)(1 + n % 251);
		rest_log_in(t, n % 8 == 0, n + 1, 1, NVJ_UPDATE, block, UINT64_C(1) << line, 0,
			    value[block][line]);
	}
	rest_seal(t, 1, NVJ_COMMIT, low, NULL);
	return t;
}

/* Each allocation fails once. Nothing is lost: a part of a ring may have no index. */
static void memory_is_short(void)
{
	bool failed = true;

	for (uint64_t n = 1; failed; n++) {
		uint8_t value[BLOCKS][NVJ_BLOCK_LINES];
		struct rest *t = many_records(value);
		struct nvj_report r;
		int error;

		t->allocations_until_error = n;
		error = nvj_recover(&t->region, &t->platform, &r);
		failed = t->allocations_until_error == 0;
		expect(!error || (failed && error == NVJ_ENOMEM));
		if (error)
			expect(nvj_recover(&t->region, &t->platform, &r) == 0);
		expect(r.records == MANY);
		for (uint64_t block = 0; block < BLOCKS; block++)
			for (unsigned line = 0; line < NVJ_BLOCK_LINES; line++)
				expect(rest_line_is(t, block, line, value[block][line]));
		rest_free(t);
	}
}

static uint64_t bytes_read;

static int count_and_read(void *to, const void *from, size_t bytes)
{
	bytes_read += bytes;
	memcpy(to, from, bytes);
	return 0;
}

/* However many rings there are, recovery reads each of them twice; with revokes four times. */
static void reads_rings_twice(unsigned rings, bool revokes)
{
	struct rest *t = rest_formatted(rings, 1024);
	const uint64_t low[NVJ_MAX_PARTITIONS] = {0};
	struct nvj_report r;

	rest_place_by_cpu(t);
	for (unsigned n = 0; n < rings * 100; n++)
		rest_log_in(t, n % rings, n + 1, 1, NVJ_UPDATE, (n * 7 + n / rings) % REST_BLOCKS,
			    UINT64_C(15) << n % 60, 0, (uint8_t)n);
	if (revokes)
		rest_log_in(t, 0, rings * 100 + 1, 1, NVJ_REVOKE, 1, 0, 0, 0);
	rest_seal(t, 1, NVJ_COMMIT, low, NULL);
	t->region.read = count_and_read;
	bytes_read = 0;
	expect(nvj_recover(&t->region, &t->platform, &r) == 0);
	expect(r.records + r.revoked == rings * 100);
	expect(r.journal_bytes == (rings * 500u + revokes) * NVJ_LINE_BYTES);
	/* Besides, the superblocks and the commit ring. */
	expect(bytes_read <= (revokes ? 4 : 2) * r.journal_bytes + 2 * t->g.partition_offset);
	rest_free(t);
}

/* What nvj_open needs besides: there is one thread. */
static void no_wake(void *context, const uint32_t *word)
{
	(void)context;
	(void)word;
}

static unsigned processor;

static unsigned this_processor(void *context)
{
	(void)context;
	return processor;
}

static uint64_t no_time(void *context)
{
	(void)context;
	return 0;
}

#define EVICTED 2u

static struct nvj *journal;
static uint8_t evicted[NVJ_BLOCK_BYTES];

/* Changes a line of the block and commits that. */
static void put(uint64_t block, uint8_t *image, uint8_t value)
{
	struct nvj_handle h;

	expect(nvj_start(journal, &h, 8) == 0 && nvj_access(&h, block, image) == 0);
	memset(image, value, NVJ_LINE_BYTES);
	expect(nvj_log(&h, block, image, NVJ_COMPARE) > 0);
	expect(nvj_commit(journal, nvj_stop(&h)) == 0);
}

/* While a round writes the block before it, the block changes again. */
static int start_write(void *context, unsigned queue, struct nvj_write *write)
{
	if (write->block == EVICTED - 1)
		for (unsigned n = 0; n < 5; n++)
			put(EVICTED, evicted, (uint8_t)(0x20 + n));
	return rest_start_write(context, queue, write);
}

/*
 * A block is at home with a version newer than the tail, and its entry is evicted. Its
 * next record must have a higher number than those that replay will find. Placed by
 * processor, the next entry is one of another processor.
 */
static void sequence_goes_on(unsigned partitions)
{
	struct rest *t = rest_formatted(partitions, 1024);
	uint8_t first[NVJ_BLOCK_BYTES];
	struct nvj_report r;
	uint64_t scanned;

	if (partitions > 1)
		rest_place_by_cpu(t);
	processor = 1;
	t->platform.start_write = start_write;
	t->platform.wake = no_wake;
	t->platform.cpu = this_processor;
	t->platform.now_ns = no_time;
	memcpy(first, t->disk[EVICTED - 1], sizeof(first));
	memcpy(evicted, t->disk[EVICTED], sizeof(evicted));
	expect(nvj_open(&journal, &t->region, &t->platform, NULL, &r) == 0);
	put(EVICTED, evicted, 0x10);
	put(EVICTED - 1, first, 0x11);
	expect(nvj_checkpoint(journal) == 0);
	/* The tail is before the five changes that came meanwhile. */
	expect(nvj_tail(journal) + 5 == nvj_committed(journal));
	expect(rest_line_is(t, EVICTED, 0, 0x24));
	expect(nvj_shrink(journal, 100, &scanned) >= 2);
	processor = 0;
	put(EVICTED, evicted, 0x30);
	nvj_abandon(journal);

	expect(nvj_recover(&t->region, &t->platform, &r) == 0 && r.records == 6);
	expect(rest_line_is(t, EVICTED, 0, 0x30) && rest_line_is(t, EVICTED - 1, 0, 0x11));
	rest_free(t);
}

int main(void)
{
	sequence_goes_on(1);
	sequence_goes_on(PARTITIONS);
	memory_is_short();
	for (unsigned rings = 1; rings <= NVJ_MAX_PARTITIONS; rings *= 4) {
		reads_rings_twice(rings, false);
		reads_rings_twice(rings, true);
	}
	for (unsigned n = 0; n < 200; n++)
		for (enum how how = BY_CPU; how <= VERSION_1; how++)
			replays(how, n % 2);
	return 0;
}
