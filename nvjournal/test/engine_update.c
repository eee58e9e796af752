/* SPDX-License-Identifier: Apache-2.0 */
/* One thread: what is committed survives a crash, and what is not does not; what a record takes. */
#include "engine.h"

static void committed_survives_and_uncommitted_does_not(void)
{
	struct engine e;
	uint64_t tid;

	engine_begin(&e, 1, 4096, false);
	tid = engine_put(&e, 7, 100, 1);
	expect(nvj_running(e.journal) == tid);
	expect(nvj_commit(e.journal, tid) == 0);
	expect(nvj_committed(e.journal) >= tid);
	expect(nvj_running(e.journal) == nvj_committed(e.journal) + 1);
	engine_put(&e, 7, 100, 2);
	engine_put(&e, 8, 0, 3);
	expect(engine_home(&e, 7)[100] == 0);
	engine_crash(&e);
	expect(engine_home(&e, 7)[100] == 1);
	expect(engine_home(&e, 8)[0] == 0);
	expect(e.report.transactions == 1 && e.report.records == 1 && !e.report.clean);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void an_operation_of_many_blocks_is_whole(void)
{
	struct engine e;

	engine_begin(&e, 4, 4096, false);
	for (unsigned round = 1; round < 20; round++) {
		struct nvj_handle h;

		expect(nvj_start(e.journal, &h, 20 * 3) == 0);
		for (unsigned i = 0; i < 20; i++)
			expect(engine_set(&e, &h, i * 3, i, (uint8_t)round) == 2);
		nvj_stop(&h);
		if (round < 19)
			expect(nvj_commit(e.journal, 0) == 0);
	}
	engine_crash(&e);
	for (unsigned i = 0; i < 20; i++)
		expect(engine_home(&e, i * 3)[i] == 18);
	expect(e.report.uncommitted == 0); /* behind the last commit's high nobody looks */
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void a_record_has_the_lines_that_changed(void)
{
	struct engine e;
	struct nvj_handle h;
	struct nvj_statistics s;

	engine_begin(&e, 1, 4096, false);
	memset(e.block[5], 9, NVJ_BLOCK_BYTES);
	expect(nvj_start(e.journal, &h, 130) == 0);
	expect(nvj_access(&h, 5, e.block[5]) == 0);
	expect(nvj_log(&h, 5, e.block[5], NVJ_COMPARE) == 0);
	e.block[5][0] = 1;
	e.block[5][4095] = 1;
	expect(nvj_log(&h, 5, e.block[5], NVJ_COMPARE) == 3);
	expect(nvj_log(&h, 5, e.block[5], NVJ_COMPARE) == 0);
	memset(e.block[5] + 64, 0, 64);
	expect(nvj_log(&h, 5, e.block[5], NVJ_COMPARE) == 1); /* a bit of the header */
	expect(nvj_log(&h, 5, e.block[5], 7) == 3);           /* a mask is taken as it is */
	nvj_stop(&h);
	s = engine_counts(&e);
	expect(s.handles == 1 && s.records == 3 && s.record_lines == 7 && s.zero_lines == 2);
	expect(nvj_close(e.journal) == 0);
	expect(memcmp(engine_home(&e, 5) + 64, e.block[5] + 64, 64) == 0);
	expect(engine_home(&e, 5)[0] == 1 && engine_home(&e, 5)[4095] == 1);
	engine_end(&e);
}

/* A handle keeps the block that it accessed last; it may log another one. */
static void blocks_are_logged_in_any_order(void)
{
	struct engine e;
	struct nvj_handle h;
	uint8_t image[NVJ_BLOCK_BYTES];

	engine_begin(&e, 2, 4096, false);
	expect(nvj_start(e.journal, &h, 130) == 0);
	for (unsigned block = 5; block < 8; block++)
		expect(nvj_access(&h, block, e.block[block]) == 0);
	for (unsigned block = 5; block < 8; block++) {
		e.block[block][0] = (uint8_t)(0x50 + block);
		expect(nvj_log(&h, block, e.block[block], 1) == 2);
	}
	nvj_stop(&h);
	for (unsigned block = 5; block < 8; block++)
		expect(nvj_peek(e.journal, block, image) && image[0] == 0x50 + block);
	expect(nvj_close(e.journal) == 0);
	for (unsigned block = 5; block < 8; block++)
		expect(engine_home(&e, block)[0] == 0x50 + block);
	engine_end(&e);
}

static void a_created_block_is_logged_whole(void)
{
	struct engine e;
	struct nvj_handle h;

	engine_begin(&e, 1, 4096, false);
	/* Rubbish at home: what the block was before. */
	memset((uint8_t *)nvju_disk_bytes(e.disk) + 9 * NVJ_BLOCK_BYTES, 0xee, NVJ_BLOCK_BYTES);
	expect(nvj_start(e.journal, &h, 65) == 0);
	expect(nvj_create(&h, 9) == 0);
	e.block[9][700] = 1;
	expect(nvj_log(&h, 9, e.block[9], NVJ_COMPARE) == 2);
	expect(nvj_commit(e.journal, nvj_stop(&h)) == 0);
	engine_crash(&e);
	expect(memcmp(engine_home(&e, 9), e.block[9], NVJ_BLOCK_BYTES) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Somebody changes the caller's memory past the journal: what was logged last counts. */
static void memory_that_is_ahead_is_logged(void)
{
	/* Header and lines: all; those that differ from what was logged; all, as it is at home. */
	static const int lines[] = {1 + 3, 1 + 2, 1 + 4};
	struct engine e;
	struct nvj_handle h;

	engine_begin(&e, 1, 4096, false);
	e.block[9][2000] = 1;
	for (unsigned round = 0; round < 3; round++) {
		e.block[9][100 + round] = 7; /* past the journal */
		expect(nvj_start(e.journal, &h, 65) == 0);
		expect(nvj_access(&h, 9, NULL) == 0);
		e.block[9][700 + round] = 7;
		expect(nvj_log(&h, 9, e.block[9], NVJ_COMPARE) == lines[round]);
		expect(nvj_commit(e.journal, nvj_stop(&h)) == 0);
		if (round == 1) {
			expect(nvj_checkpoint(e.journal) == 0);
			e.block[9][4000] = 7;
		}
	}
	engine_crash(&e);
	expect(memcmp(engine_home(&e, 9), e.block[9], NVJ_BLOCK_BYTES) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void limits_are_kept(void)
{
	struct engine e;
	struct nvj_handle h;
	uint32_t most;

	engine_begin(&e, 1, 4096, false);
	most = nvj_max_credits(e.journal);
	expect(nvj_start(e.journal, &h, most + 1) == NVJ_ENOSPC);
	expect(nvj_start(e.journal, &h, 2) == 0);
	memset(e.block[1], 7, NVJ_BLOCK_BYTES);
	expect(nvj_log(&h, 1, e.block[1], NVJ_ALL_LINES) == NVJ_EINVAL); /* no access */
	expect(nvj_access(&h, 1, e.block[1]) == 0);
	expect(nvj_log(&h, 1, e.block[1], NVJ_ALL_LINES) == NVJ_ENOSPC);
	expect(nvj_extend(&h, 63) == 0);
	expect(nvj_log(&h, 1, e.block[1], NVJ_ALL_LINES) == 65);
	expect(nvj_log(&h, 1, e.block[1], 1) == NVJ_ENOSPC);
	expect(nvj_revoke(&h, 1) == NVJ_ENOSPC);
	expect(nvj_extend(&h, most) == NVJ_ENOSPC);
	expect(nvj_close(e.journal) == NVJ_EBUSY);
	expect(nvj_access(&h, UINT64_MAX, NULL) == NVJ_EINVAL);
	expect(nvj_revoke(&h, UINT64_MAX) == NVJ_EINVAL);
	nvj_stop(&h);
	expect(nvj_commit(e.journal, nvj_running(e.journal) + 1) == NVJ_EINVAL);
	expect(nvj_committed(e.journal) < nvj_running(e.journal));
	expect(nvj_commit(e.journal, nvj_running(e.journal)) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void commit_of_nothing_costs_no_fence(void)
{
	struct engine e;
	struct nvj_handle h;
	uint64_t tid, fences;

	engine_begin(&e, 2, 4096, false);
	tid = engine_put(&e, 3, 3, 3);
	expect(nvj_commit(e.journal, tid) == 0);
	fences = engine_counts(&e).fences;
	expect(nvj_commit(e.journal, tid) == 0);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_start(e.journal, &h, 1) == 0);
	tid = nvj_stop(&h);
	expect(nvj_commit(e.journal, tid) == 0);
	expect(nvj_committed(e.journal) >= tid);
	expect(engine_counts(&e).fences == fences);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void peek_shows_what_is_not_at_home(void)
{
	struct engine e;
	uint8_t image[NVJ_BLOCK_BYTES];

	engine_begin(&e, 2, 4096, false);
	expect(!nvj_peek(e.journal, 11, image));
	engine_put(&e, 11, 5, 1);
	expect(nvj_peek(e.journal, 11, image) && image[5] == 1);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_peek(e.journal, 11, image) && image[5] == 1);
	expect(nvj_checkpoint(e.journal) == 0);
	expect(!nvj_peek(e.journal, 11, image));
	expect(engine_home(&e, 11)[5] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* What the caller did to a clean block beside the journal is no change of the next handle. */
static void a_clean_block_is_as_the_caller_has_it(void)
{
	struct engine e;
	struct nvj_handle h;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 4, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0 && nvj_checkpoint(e.journal) == 0);
	e.block[4][2000] = 8; /* as if read anew from the disk */
	expect(nvj_start(e.journal, &h, 65) == 0);
	expect(engine_set(&e, &h, 4, 64, 2) == 2);
	nvj_stop(&h);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void close_leaves_nothing_to_replay(void)
{
	struct engine e;

	engine_begin(&e, 3, 4096, false);
	for (unsigned i = 0; i < 50; i++)
		engine_put(&e, i, i, 1);
	expect(nvj_close(e.journal) == 0);
	for (unsigned i = 0; i < 50; i++)
		expect(engine_home(&e, i)[i] == 1);
	engine_open(&e);
	expect(e.report.clean && e.report.blocks == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void another_disk_is_refused(void)
{
	struct engine e;
	struct nvj_format_options format = {.partitions = 1, .disk_uuid = {1}};

	engine_begin(&e, 1, 4096, false);
	expect(nvj_close(e.journal) == 0);
	nvju_uuid(format.uuid);
	expect(nvj_format(nvju_region(e.region), &format) == 0);
	e.options.disk_uuid[0] = 2;
	expect(nvj_open(&e.journal, nvju_region(e.region), &e.platform.platform, &e.options,
			&e.report) == NVJ_EMEDIUM);
	e.options.disk_uuid[0] = 1;
	engine_open(&e);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

int main(void)
{
	committed_survives_and_uncommitted_does_not();
	an_operation_of_many_blocks_is_whole();
	a_record_has_the_lines_that_changed();
	blocks_are_logged_in_any_order();
	a_created_block_is_logged_whole();
	memory_that_is_ahead_is_logged();
	limits_are_kept();
	commit_of_nothing_costs_no_fence();
	peek_shows_what_is_not_at_home();
	a_clean_block_is_as_the_caller_has_it();
	close_leaves_nothing_to_replay();
	another_disk_is_refused();
	return 0;
}
