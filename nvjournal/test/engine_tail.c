/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint says where the tail is, and marks of it tell an older copy of a region. */
#include "engine.h"

static struct engine engine;
static uint64_t told[64];
static unsigned tells;

/* The region's tail is there already, and nobody else is told so yet. */
static void moved(void *context, uint64_t tid)
{
	struct nvju_platform *platform = context;
	uint64_t in_region;

	expect(platform->disk == engine.disk);
	expect(nvj_read_tail(nvju_region(engine.region), &in_region) == 0 && in_region == tid);
	expect(nvj_tail(engine.journal) < tid);
	expect(tells < 64 && (!tells || told[tells - 1] < tid));
	told[tells++] = tid;
}

static void each_checkpoint_tells(bool workers)
{
	uint64_t tail;

	tells = 0;
	engine_begin(&engine, 4, 2048, workers);
	engine_stop_workers(&engine);
	expect(nvj_close(engine.journal) == 0);
	engine.platform.platform.tail_moved = moved;
	engine_open(&engine);
	expect(tells == 0);
	for (unsigned n = 0; n < 5; n++) {
		engine_put(&engine, n, 0, (uint8_t)(n + 1));
		expect(nvj_commit(engine.journal, 0) == 0);
		expect(nvj_checkpoint(engine.journal) == 0);
		expect(tells == n + 1 && told[n] == nvj_tail(engine.journal));
	}
	/* Nothing to carry home: nothing to tell. */
	expect(nvj_checkpoint(engine.journal) == 0 && tells == 5);
	/* Not of a round that fails: the tail stays. */
	engine_put(&engine, 7, 0, 7);
	expect(nvj_commit(engine.journal, 0) == 0);
	tail = nvj_tail(engine.journal);
	nvju_disk_fail(engine.disk, &(struct nvju_disk_faults){.next_flush = 1});
	expect(nvj_checkpoint(engine.journal) != 0);
	expect(tells == 5 && nvj_tail(engine.journal) == tail);
	engine_stop_workers(&engine);
	nvj_abandon(engine.journal);
	engine_end(&engine);
}

static void a_mark_is_of_one_journal_and_whole(void)
{
	const uint8_t uuid[16] = {1, 2, 3}, other[16] = {1, 2, 4};
	struct nvj_disk_mark mark, damaged;

	nvj_mark_make(&mark, uuid, 77);
	expect(nvj_mark_tail(&mark, uuid) == 77);
	expect(nvj_mark_tail(&mark, other) == 0);
	for (unsigned bit = 0; bit < 8 * sizeof(mark); bit++) {
		damaged = mark;
		((uint8_t *)&damaged)[bit / 8] ^= (uint8_t)(1u << bit % 8);
		expect(nvj_mark_tail(&damaged, uuid) == 0);
	}
	memset(&damaged, 0, sizeof(damaged));
	expect(nvj_mark_tail(&damaged, uuid) == 0);
}

static void a_tail_is_read_of_either_copy(void)
{
	uint64_t tail, *words;

	engine_begin(&engine, 1, 2048, false);
	engine_put(&engine, 3, 0, 3);
	expect(nvj_commit(engine.journal, 0) == 0 && nvj_checkpoint(engine.journal) == 0);
	words = (uint64_t *)((char *)nvju_region(engine.region)->base + NVJ_TAIL_OFFSET);
	words[0] ^= 1;
	expect(nvj_read_tail(nvju_region(engine.region), &tail) == 0);
	expect(tail == nvj_tail(engine.journal));
	words[8] ^= 1;
	expect(nvj_read_tail(nvju_region(engine.region), &tail) == NVJ_EUCLEAN);
	nvj_abandon(engine.journal);
	engine_end(&engine);
}

int main(void)
{
	each_checkpoint_tells(false);
	each_checkpoint_tells(true);
	a_mark_is_of_one_journal_and_whole();
	a_tail_is_read_of_either_copy();
	return 0;
}
