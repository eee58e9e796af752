/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A crash at each step of recovery: from that step on nothing reaches region or
 * disk; of what was not yet fenced or flushed all, nothing, or any part is lost.
 * Then it is recovered again, at each step of which there may be one more crash.
 * At the end the blocks are those of a recovery without any.
 *
 * And a crash at each step of a format: it leaves the old journal whole, none, or
 * the new one.
 */
#include "rest.h"

#define BLOCKS 24u
#define PENDING 64u

static struct {
	struct rest *t;
	uint64_t steps, crash_at; /* 0: never */
	struct nvj_persistence persistence;
	/* Stores not yet fenced: where, and what was there before. */
	struct {
		uint8_t *at, before[NVJ_BLOCK_BYTES];
		size_t bytes;
	} store[PENDING];
	unsigned stores;
	/* The disk as it is for good. */
	uint8_t flushed[BLOCKS][NVJ_BLOCK_BYTES];
} world;

static uint64_t random64(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static bool dead(void)
{
	return world.crash_at && world.steps >= world.crash_at;
}

static bool step(void)
{
	if (!dead())
		world.steps++;
	return !dead();
}

static void crash_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	(void)p;
	if (!step())
		return;
	expect(world.stores < PENDING && bytes <= NVJ_BLOCK_BYTES);
	world.store[world.stores].at = to;
	world.store[world.stores].bytes = bytes;
	memcpy(world.store[world.stores++].before, to, bytes);
	memcpy(to, from, bytes);
}

static void crash_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	crash_write(p, to, &value, 8);
}

static void crash_fence(const struct nvj_persistence *p)
{
	(void)p;
	if (step())
		world.stores = 0;
}

static struct nvj_write *crash_finish_write(void *context, unsigned queue)
{
	struct rest *t = context;
	bool alive = step();
	struct nvj_write *w = t->queue[queue][t->in_flight[queue] - 1];
	static uint8_t before[NVJ_BLOCK_BYTES];
	uint64_t block = w->block;

	memcpy(before, t->disk[block], sizeof(before));
	w = rest_finish_write(context, queue);
	if (!alive)
		memcpy(t->disk[block], before, sizeof(before));
	return w;
}

static int crash_flush(void *context)
{
	if (step()) {
		rest_flush(context);
		memcpy(world.flushed, world.t->disk, sizeof(world.flushed));
	}
	return 0;
}

/*
 * What was not fenced or flushed is lost: never (0), always (1), or as it comes, by 8 bytes (2)
 * or by stores (3), and by sectors.
 */
static void power_fails(unsigned mode)
{
	struct rest *t = world.t;

	while (world.stores) {
		uint8_t *at = world.store[--world.stores].at;
		bool whole = mode == 3 && random64() & 1;

		for (size_t i = 0; i < world.store[world.stores].bytes; i += 8)
			if (mode == 1 || whole || (mode == 2 && random64() & 1))
				memcpy(at + i, world.store[world.stores].before + i, 8);
	}
	for (unsigned b = 0; b < BLOCKS; b++)
		for (unsigned sector = 0; sector < 8; sector++)
			if (mode == 1 || (mode >= 2 && random64() & 1))
				memcpy(&t->disk[b][sector * 512], &world.flushed[b][sector * 512],
				       512);
	memcpy(world.flushed, t->disk, sizeof(world.flushed));
}

/* Recovers, with a crash at this step; true if it came to the end before. */
static bool recover_until(uint64_t crash_at)
{
	struct nvj_report r;
	int error;

	world.steps = 0;
	world.crash_at = crash_at;
	error = nvj_recover(&world.t->region, &world.t->platform, &r);
	expect(error == 0);
	return !dead();
}

static struct rest *journal(bool old)
{
	struct rest *t = rest_formatted(2, 1024);
	uint64_t low[2];

	if (old)
		rest_make_old(t);
	rest_log(t, 1, NVJ_UPDATE, 8, 0x1, 0, 0x81);
	for (uint64_t block = 0; block < 6; block++)
		rest_log(t, 1, NVJ_UPDATE, block, UINT64_C(0x0101010101010101) << block, 0, 0x11);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	rest_log(t, 2, NVJ_REVOKE, 8, 0, 0, 0);
	rest_log(t, 2, NVJ_UPDATE, 4, 0x30, 0, 0x24);
	memcpy(low, t->head, sizeof(low));
	rest_log(t, 3, NVJ_UPDATE, 4, 0x20, 0, 0x34);
	rest_log(t, 2, NVJ_UPDATE, 5, NVJ_ALL_LINES, 0xff, 0x25);
	rest_seal(t, 2, NVJ_COMMIT, low, NULL);
	rest_log(t, 3, NVJ_UPDATE, 5, 1, 0, 0x35);
	/* A copy of each is damaged: recovery repairs these. */
	t->memory[NVJ_SUPER_OFFSET + 20] ^= 1;
	t->memory[NVJ_TAIL_COPY_OFFSET] ^= 1;
	return t;
}

/* old: of a region of format version 1, which is upgraded. */
static void recovery(bool old)
{
	static uint8_t want[BLOCKS][NVJ_BLOCK_BYTES];
	struct rest *t = world.t = journal(old);
	struct nvj_disk_super super;
	uint64_t crashes = 0, all;

	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, NULL) == 0);
	memcpy(want, t->disk, sizeof(want));
	expect(memcmp(want, t->disk_copy, sizeof(want)) && rest_line_old(t, 8, 0));
	t->region.persistence = &world.persistence;
	t->platform.finish_write = crash_finish_write;
	t->platform.flush = crash_flush;

	rest_back(t);
	expect(recover_until(0));
	all = world.steps;
	/* The seal and a fence, 6 blocks, the flush, both tails and a fence, a superblock and a
	 * fence. And for an upgrade both superblocks, with a fence after each. */
	expect(all == 2 + 6 + 1 + 3 + 2 + (old ? 4 : 0));

	for (unsigned mode = 0; mode < 4; mode++)
		for (uint64_t first = 1; first <= all; first++)
			for (uint64_t second = 1; second <= all + 1; second++)
				for (unsigned again = 0; again < (mode >= 2 ? 20 : 1); again++) {
					struct nvj_report r;

					rest_back(t);
					world.stores = 0;
					memcpy(world.flushed, t->disk, sizeof(world.flushed));
					expect(!recover_until(first));
					power_fails(mode);
					crashes++;
					if (!recover_until(second)) {
						power_fails(mode);
						crashes++;
					}
					expect(recover_until(0) && world.stores == 0);
					expect(!memcmp(t->disk, want, sizeof(want)));
					expect(!nvj_check(&t->region, &t->platform, &r));
					expect(r.clean && r.findings == 0 && r.tail_tid == 2);
					expect(!nvj_read_super(&t->region, &super));
					expect(super.version == NVJ_FORMAT_VERSION);
					expect(super.placement == NVJ_PLACE_BLOCK);
				}
	printf("%llu crashes%s\n", (unsigned long long)crashes, old ? ", version 1" : "");
	rest_free(t);
}

/*
 * The process was killed between the newest seal and its fence: recovery sees the
 * seal, but it is in a cache only, and power may fail at any step of recovery.
 * Transaction 2 then counts or not; but it is at home whole or not at all.
 */
static void seal_not_fenced(void)
{
	static uint8_t with[BLOCKS][NVJ_BLOCK_BYTES], without[BLOCKS][NVJ_BLOCK_BYTES];
	struct rest *t = world.t = journal(false);
	uint64_t *seal = &nvj_commit_at(&t->g, 2)->seal, sealed = *seal;
	unsigned left[2] = {0};

	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, NULL) == 0);
	memcpy(with, t->disk, sizeof(with));
	rest_back(t);
	*seal = 0;
	expect(nvj_recover(&t->region, &t->platform, NULL) == 0);
	memcpy(without, t->disk, sizeof(without));
	expect(memcmp(with, without, sizeof(with)));

	t->region.persistence = &world.persistence;
	t->platform.finish_write = crash_finish_write;
	t->platform.flush = crash_flush;
	for (unsigned mode = 0; mode < 4; mode++)
		for (uint64_t step = 1, done = 0; !done; step++)
			for (unsigned again = 0; again < 50; again++) {
				struct nvj_report r;
				bool second;

				rest_back(t);
				expect(*seal == sealed);
				world.stores = 1;
				world.store[0].at = (uint8_t *)seal;
				world.store[0].bytes = 8;
				memset(world.store[0].before, 0, 8);
				memcpy(world.flushed, t->disk, sizeof(world.flushed));
				done = recover_until(step);
				power_fails(mode);
				expect(recover_until(0));
				expect(nvj_check(&t->region, &t->platform, &r) == 0 && r.clean);
				second = r.tail_tid == 2;
				expect(second || (r.tail_tid == 1 && !done));
				expect(!memcmp(t->disk, second ? with : without, sizeof(with)));
				left[second]++;
			}
	printf("seal not fenced: transaction lost %u times, kept %u\n", left[0], left[1]);
	expect(left[0] && left[1]);
	rest_free(t);
}

static void format(void)
{
	unsigned left[3] = {0};

	for (unsigned round = 0; round < 80; round++)
		for (uint64_t step = 1, done = 0; !done; step++) {
			struct rest *t = world.t = journal(false);
			struct nvj_format_options o = rest_options;
			struct nvj_disk_super super;
			struct nvj_report r;
			int error;

			memcpy(world.flushed, t->disk, sizeof(world.flushed));
			o.uuid[5] ^= 0xff;
			t->region.persistence = &world.persistence;
			world.steps = 0;
			world.crash_at = step;
			expect(nvj_format(&t->region, &o) == 0);
			done = !dead();
			expect(!done || world.stores == 0);
			power_fails(round < 2 ? round : 2 + round % 2);
			world.crash_at = 0;
			error = nvj_read_super(&t->region, &super);
			if (done)
				expect(!error && super.uuid[5] == o.uuid[5]);
			/* Torn superblocks are none, or say so; else what they speak of is there.
			 */
			if (error) {
				expect(error == NVJ_ENODATA || error == NVJ_EUCLEAN);
				left[0]++;
			} else {
				expect(nvj_check(&t->region, &t->platform, &r) == 0);
				expect(super.uuid[5] == o.uuid[5] ? r.clean && r.committed_tid == 0
								  : r.transactions == 2);
				left[1 + (super.uuid[5] == o.uuid[5])]++;
			}
			rest_free(t);
		}
	printf("format left none %u times, the old journal %u, the new one %u\n", left[0], left[1],
	       left[2]);
	expect(left[0] && left[1] && left[2]);
}

int main(void)
{
	world.persistence = (struct nvj_persistence){.name = "crash",
						     .write = crash_write,
						     .store64 = crash_store64,
						     .fence = crash_fence};
	recovery(false);
	recovery(true);
	seal_not_fenced();
	format();
	return 0;
}
