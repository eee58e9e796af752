/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rings that are far too small: handles wait for room and never in the middle,
 * no ring is written over, and what comes out at the end is right.
 */
#include "engine.h"
#include "journal.h"

#define THREADS 4u
#define OPERATIONS 6000u
#define OWN_BLOCKS 16u

struct player {
	struct engine *e;
	unsigned number;
	uint64_t last; /* value that is in all of its blocks */
	uint64_t kept; /* and that is committed */
	pthread_t thread;
};

static uint64_t value_of(const uint8_t *block)
{
	uint64_t value;

	memcpy(&value, block, sizeof(value));
	return value;
}

/* Each operation writes the same number into three blocks, and one more line. */
static void *play(void *argument)
{
	struct player *p = argument;
	struct engine *e = p->e;

	for (uint64_t n = 1; n <= OPERATIONS; n++) {
		struct nvj_handle h;
		uint64_t tid;

		expect(nvj_start(e->journal, &h, 3 * 4) == 0);
		for (unsigned i = 0; i < 3; i++) {
			uint64_t number = p->number * OWN_BLOCKS + i;
			uint8_t *block = e->block[number];

			expect(nvj_access(&h, number, block) == 0);
			memcpy(block, &n, sizeof(n));
			memcpy(block + 64 * (1 + n % 60), &n, sizeof(n));
			expect(nvj_log(&h, number, block, NVJ_COMPARE) > 0);
		}
		tid = nvj_stop(&h);
		p->last = n;
		if (n % 64 == 0) {
			expect(nvj_commit(e->journal, tid) == 0);
			p->kept = n;
		}
	}
	return NULL;
}

static void many_laps(unsigned partitions, unsigned threads, bool workers)
{
	struct engine e;
	struct player player[THREADS];
	struct nvj_statistics s;

	engine_begin(&e, partitions, NVJ_MIN_RING_LINES, workers);
	for (unsigned i = 0; i < threads; i++) {
		player[i] = (struct player){.e = &e, .number = i};
		expect(pthread_create(&player[i].thread, NULL, play, &player[i]) == 0);
	}
	for (unsigned i = 0; i < threads; i++)
		expect(pthread_join(player[i].thread, NULL) == 0);
	s = engine_counts(&e);
	expect(s.handles == threads * OPERATIONS && s.records == 3 * s.handles);
	expect(s.record_lines >= 6 * s.handles && s.used_lines <= s.ring_lines);
	expect(s.record_lines > 4 * NVJ_MIN_RING_LINES * partitions && s.checkpoints > 4);
	engine_crash(&e);
	for (unsigned i = 0; i < threads; i++) {
		uint64_t value = value_of(engine_home(&e, i * OWN_BLOCKS));

		expect(value >= player[i].kept && value <= player[i].last);
		for (unsigned k = 1; k < 3; k++)
			expect(value_of(engine_home(&e, i * OWN_BLOCKS + k)) == value);
	}
	engine_stop_workers(&e);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* The commit ring has 64 slots, and nobody asks for a checkpoint. */
static void more_commits_than_slots(void)
{
	struct engine e;

	engine_begin(&e, 1, 1 << 16, false);
	for (unsigned n = 1; n <= 1000; n++)
		expect(nvj_commit(e.journal, engine_put(&e, n % 8, n % 4096, (uint8_t)(n | 1))) ==
		       0);
	/* In the thread that commits, as there are no workers: when half of the slots are used. */
	expect(engine_counts(&e).checkpoints >= 1000 / 33);
	engine_crash(&e);
	for (unsigned n = 0; n < 8; n++)
		expect(memcmp(engine_home(&e, n), e.block[n], NVJ_BLOCK_BYTES) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/*
 * A worker is asked for a checkpoint when half of the slots are used. So no commit
 * writes blocks home itself, as long as a round takes less than the other half.
 */
static void workers_free_slots(void)
{
	struct engine e;
	unsigned rounds = 0;

	engine_begin(&e, 1, 1 << 16, false);
	expect(nvj_close(e.journal) == 0);
	/* The workers are this thread, between commits. */
	e.options.workers = true;
	expect(nvj_open(&e.journal, nvju_region(e.region), &e.platform.platform, &e.options,
			&e.report) == 0);
	for (unsigned n = 1, waited = 0; n <= 1000; n++) {
		uint64_t home = engine_counts(&e).blocks_home;

		expect(nvj_commit(e.journal, engine_put(&e, n % 8, n % 4096, (uint8_t)(n | 1))) ==
		       0);
		expect(engine_counts(&e).blocks_home == home);
		if (!nvj_load(&e.journal->wanted))
			continue;
		/* It comes to it only 20 commits later. */
		if (waited++ < 20)
			continue;
		expect(nvj_checkpoint_wanted(e.journal) == 0);
		expect(engine_counts(&e).checkpoints == ++rounds);
		waited = 0;
	}
	expect(rounds >= 1000 / 64 && rounds <= 1000 / 32);
	e.options.workers = false;
	nvj_abandon(e.journal);
	engine_open(&e);
	for (unsigned n = 0; n < 8; n++)
		expect(memcmp(engine_home(&e, n), e.block[n], NVJ_BLOCK_BYTES) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* The largest handle there may be, again and again. */
static void largest_handles(void)
{
	struct engine e;

	engine_begin(&e, 1, 2048, false);
	for (unsigned n = 1; n <= 200; n++) {
		struct nvj_handle h;

		expect(nvj_start(e.journal, &h, nvj_max_credits(e.journal)) == 0);
		for (unsigned i = 0; i < nvj_max_credits(e.journal) / NVJ_BLOCK_CREDITS; i++) {
			expect(nvj_access(&h, i, e.block[i]) == 0);
			memset(e.block[i], (int)n, NVJ_BLOCK_BYTES);
			expect(nvj_log(&h, i, e.block[i], NVJ_ALL_LINES) == NVJ_BLOCK_CREDITS);
		}
		nvj_stop(&h);
	}
	expect(nvj_commit(e.journal, 0) == 0);
	engine_crash(&e);
	expect(engine_home(&e, 0)[0] == 200 && engine_home(&e, 6)[4095] == 200);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* More blocks than the table keeps: clean ones go, and come again. */
static void many_blocks(void)
{
	struct engine e;

	engine_begin(&e, 2, NVJ_MIN_RING_LINES, false);
	for (unsigned n = 0; n < 20 * ENGINE_BLOCKS; n++)
		engine_put(&e, n * 7 % ENGINE_BLOCKS, n % 4096, (uint8_t)n);
	expect(nvj_close(e.journal) == 0);
	for (unsigned n = 0; n < ENGINE_BLOCKS; n++)
		expect(memcmp(engine_home(&e, n), e.block[n], NVJ_BLOCK_BYTES) == 0);
	engine_end(&e);
}

/* The journal of the region is opened again, as if so many lines were written before. */
static void begin_at(struct engine *e, uint64_t position)
{
	const struct nvj_region *region = nvju_region(e->region);
	struct nvj_commit_buffer anchor;
	struct nvj_report report;
	struct nvj_disk_super super;
	struct nvj_geometry g;
	unsigned damaged;
	bool layout;

	nvj_abandon(e->journal);
	expect(nvj_check(region, &e->platform.platform, &report) == 0);
	expect(nvj_super_read(region, &super, &g, &damaged, &layout) == 0);
	nvj_commit_begin(&g, &anchor, report.tail_tid, NVJ_ANCHOR, 0);
	for (unsigned n = 0; n < g.partitions; n++)
		anchor.at[n].low = anchor.at[n].high = position;
	nvj_commit_write_body(&g, region->persistence, &anchor);
	nvj_commit_write_seal(&g, region->persistence, &anchor);
	engine_open(e);
}

/* A commit beside an open handle reads the flags, which have not all bits of a position. */
static void the_highest_position(void)
{
	struct engine e;
	struct nvj_handle old, new;
	struct engine_commit call;
	uint64_t tid;

	engine_begin(&e, 2, 4096, false);
	begin_at(&e, NVJ_MAX_POSITION);
	tid = engine_counts(&e).running_tid;
	expect(nvj_start(e.journal, &old, 20) == 0);
	expect(engine_set(&e, &old, 1, 0, 1) == 2);
	engine_begin_commit(&call, &e, tid);
	engine_await_running(&e, tid + 1);
	expect(nvj_start(e.journal, &new, 20) == 0);
	expect(nvj_stop(&old) == tid);
	engine_end_commit(&call);
	(void)nvj_stop(&new);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

int main(void)
{
	many_laps(1, 1, false);
	many_laps(1, THREADS, false);
	many_laps(3, THREADS, false);
	many_laps(1, 1, true);
	many_laps(3, THREADS, true);
	the_highest_position();
	more_commits_than_slots();
	workers_free_slots();
	largest_handles();
	many_blocks();
	return 0;
}
