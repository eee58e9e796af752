/* SPDX-License-Identifier: Apache-2.0 */
/* Single blocks that are brought home, and the journal that goes on beside it. */
#include "../core/journal.h"
#include "engine.h"

static void those_named_come_home(void)
{
	const uint64_t named[] = {6, 9, 300};
	struct engine e;

	engine_begin(&e, 2, 4096, false);
	engine_put(&e, 6, 0, 1);
	engine_put(&e, 7, 0, 2);
	engine_put(&e, 9, 4000, 3);
	expect(nvj_commit(e.journal, 0) == 0);
	uint64_t tail = nvj_tail(e.journal);

	expect(nvj_bring_home(e.journal, named, 3, true) == 0);
	expect(engine_home(&e, 6)[0] == 1 && engine_home(&e, 9)[4000] == 3);
	expect(engine_home(&e, 7)[0] == 0);
	expect(engine_counts(&e).blocks_home == 2 && nvj_tail(e.journal) == tail);
	/* Once more: there is nothing to write. */
	expect(nvj_bring_home(e.journal, named, 3, true) == 0);
	expect(engine_counts(&e).blocks_home == 2);
	/* Nor has a checkpoint to write these. */
	expect(nvj_checkpoint(e.journal) == 0);
	expect(engine_counts(&e).blocks_home == 3 && engine_home(&e, 7)[0] == 2);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void what_is_not_committed_stays(void)
{
	const uint64_t named = 6;
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	engine_put(&e, 6, 0, 2);
	expect(nvj_bring_home(e.journal, &named, 1, true) == NVJ_EAGAIN);
	expect(engine_home(&e, 6)[0] == 0);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_bring_home(e.journal, &named, 1, true) == 0);
	expect(engine_home(&e, 6)[0] == 2);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* More than a queue takes at once. */
static void many_come_home(void)
{
	uint64_t named[3 * NVJ_QUEUE_DEPTH];
	const unsigned many = 3 * NVJ_QUEUE_DEPTH;
	struct engine e;

	engine_begin(&e, 8, 4096, true);
	for (unsigned i = 0; i < many; i++) {
		named[i] = (uint64_t)i * 5 % ENGINE_BLOCKS;
		engine_put(&e, named[i], 0, (uint8_t)(1 + i));
	}
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_bring_home(e.journal, named, many, true) == 0);
	for (unsigned i = 0; i < many; i++)
		expect(engine_home(&e, named[i])[0] == (uint8_t)(1 + i));
	engine_stop_workers(&e);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Written past the journal once it is at home and revoked: a crash does not put it back. */
static void the_callers_own_write_survives(void)
{
	const uint64_t named = 6;
	struct nvj_handle h;
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_bring_home(e.journal, &named, 1, true) == 0);
	expect(nvj_start(e.journal, &h, 1) == 0);
	expect(nvj_revoke(&h, 6) == 0);
	expect(nvj_commit(e.journal, nvj_stop(&h)) == 0);
	memset((uint8_t *)nvju_disk_bytes(e.disk) + 6 * NVJ_BLOCK_BYTES, 9, NVJ_BLOCK_BYTES);
	engine_crash(&e);
	expect(engine_home(&e, 6)[0] == 9);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void not_of_an_aborted_journal(void)
{
	const uint64_t named = 6;
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	nvj_abort(e.journal, NVJ_EIO);
	expect(nvj_bring_home(e.journal, &named, 1, true) == NVJ_EROFS);
	expect(engine_home(&e, 6)[0] == 0);
	nvj_abandon(e.journal);
	engine_end(&e);
}

struct beside {
	struct engine *e;
	uint64_t block;
};

/* Each changes a block of its own, commits, and has it brought home. */
static void *come_and_go(void *argument)
{
	struct beside *b = argument;

	for (unsigned i = 1; i <= 300; i++) {
		engine_put(b->e, b->block, 0, (uint8_t)i);
		expect(nvj_commit(b->e->journal, 0) == 0);
		expect(nvj_bring_home(b->e->journal, &b->block, 1, i % 2) == 0);
		expect(engine_home(b->e, b->block)[0] == (uint8_t)i);
	}
	return NULL;
}

static void *checkpoint(void *argument)
{
	struct engine *e = argument;

	for (unsigned i = 0; i < 300; i++)
		expect(nvj_checkpoint(e->journal) == 0);
	return NULL;
}

static void beside_checkpoints(void)
{
	struct engine e;
	struct beside beside[3];
	pthread_t thread[4];

	engine_begin(&e, 2, 4096, false);
	for (unsigned i = 0; i < 3; i++) {
		beside[i] = (struct beside){&e, 2 * i + 1};
		expect(pthread_create(&thread[i], NULL, come_and_go, &beside[i]) == 0);
	}
	expect(pthread_create(&thread[3], NULL, checkpoint, &e) == 0);
	for (unsigned i = 0; i < 4; i++)
		expect(pthread_join(thread[i], NULL) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/*
 * Two open handles of two transactions count on a spare image each: the later one
 * freezes the version of the earlier one. That all of the block comes home meanwhile
 * changes nothing.
 */
static void spares_of_open_handles_stay(void)
{
	const uint64_t block = 6;
	struct nvj_handle earlier, later;
	struct engine_commit commit;
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	expect(nvj_commit(e.journal, engine_put(&e, block, 0, 1)) == 0);
	expect(nvj_start(e.journal, &earlier, 2 * NVJ_BLOCK_CREDITS) == 0);
	/* There is something to commit. */
	expect(engine_set(&e, &earlier, 7, 0, 1) >= 0);
	expect(nvj_access(&earlier, block, e.block[block]) == 0);
	engine_begin_commit(&commit, &e, earlier.tid);
	engine_await_running(&e, earlier.tid + 1);
	expect(nvj_start(e.journal, &later, NVJ_BLOCK_CREDITS) == 0);
	expect(later.tid == earlier.tid + 1);
	expect(nvj_access(&later, block, e.block[block]) == 0);
	expect(nvj_checkpoint(e.journal) == 0);
	expect(engine_home(&e, block)[0] == 1);
	e.block[block][64] = 2;
	expect(nvj_log(&earlier, block, e.block[block], NVJ_COMPARE) >= 0);
	e.block[block][128] = 3;
	expect(nvj_log(&later, block, e.block[block], NVJ_COMPARE) >= 0);
	(void)nvj_stop(&earlier);
	(void)nvj_stop(&later);
	engine_end_commit(&commit);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_checkpoint(e.journal) == 0);
	expect(!memcmp(engine_home(&e, block), e.block[block], NVJ_BLOCK_BYTES));
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Whoever asks for memory waits for nobody: with these locks held it returns. */
static void what_is_in_use_is_left(struct engine *e)
{
	struct nvj *j = e->journal;
	uint64_t scanned;

	for (unsigned i = 0; i < j->partitions; i++)
		nvj_lock(&j->partition[i].list_lock, &j->platform);
	expect(nvj_shrink(j, 10, &scanned) == 0 && scanned == 0);
	for (unsigned i = 0; i < j->partitions; i++)
		nvj_unlock(&j->partition[i].list_lock, &j->platform);
	for (unsigned i = 0; i < j->partitions; i++)
		for (uint64_t n = 0; n < UINT64_C(1) << (64 - j->partition[i].bucket_shift); n++)
			nvj_lock(&j->partition[i].buckets[n].lock, &j->platform);
	(void)nvj_shrink(j, ~UINT64_C(0), &scanned);
	expect(scanned >= 100 && nvj_images(j) >= 100);
	for (unsigned i = 0; i < j->partitions; i++)
		for (uint64_t n = 0; n < UINT64_C(1) << (64 - j->partition[i].bucket_shift); n++)
			nvj_unlock(&j->partition[i].buckets[n].lock, &j->platform);
}

/* Copies of blocks that are at home are freed; the other copies stay, and the journal goes on. */
static void memory_of_clean_blocks_is_given_back(void)
{
	struct engine e;
	uint64_t images, scanned;

	engine_begin(&e, 2, 4096, false);
	for (unsigned n = 0; n < 100; n++)
		engine_put(&e, n, 0, (uint8_t)(n + 1));
	expect(nvj_commit(e.journal, 0) == 0);
	images = nvj_images(e.journal);
	expect(images >= 100);
	/* Nothing is at home. */
	(void)nvj_shrink(e.journal, ~UINT64_C(0), &scanned);
	expect(nvj_images(e.journal) >= 100 && engine_home(&e, 50)[0] == 0);
	expect(scanned >= 100);
	/* It does not look at all of them in vain. */
	expect(nvj_shrink(e.journal, 10, &scanned) == 0 && scanned == 20);
	expect(nvj_checkpoint(e.journal) == 0);
	what_is_in_use_is_left(&e);
	expect(nvj_shrink(e.journal, 10, &scanned) == 10 && scanned >= 10 && scanned <= 20);
	expect(nvj_shrink(e.journal, ~UINT64_C(0), &scanned) >= 80);
	expect(nvj_images(e.journal) <= 4);
	for (unsigned n = 0; n < 100; n++) {
		expect(engine_home(&e, n)[0] == n + 1);
		engine_put(&e, n, 64, (uint8_t)(n + 2));
	}
	expect(nvj_commit(e.journal, 0) == 0 && nvj_checkpoint(e.journal) == 0);
	for (unsigned n = 0; n < 100; n++)
		expect(engine_home(&e, n)[0] == n + 1 && engine_home(&e, n)[64] == n + 2);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

int main(void)
{
	memory_of_clean_blocks_is_given_back();
	those_named_come_home();
	what_is_not_committed_stays();
	many_come_home();
	the_callers_own_write_survives();
	not_of_an_aborted_journal();
	beside_checkpoints();
	spares_of_open_handles_stay();
	return 0;
}
