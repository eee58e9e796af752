/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that are logged when their transaction closes: nvj_log_later. */
#include "engine.h"

#define LINES (6 * NVJ_BLOCK_CREDITS)
/* What nvj_log_later returns of a change that waits. */
#define WAITS ((int)NVJ_BLOCK_CREDITS)

static void begin(struct engine *e)
{
	engine_begin(e, 2, 4096, false);
	expect(nvj_allow_later(e->journal, LINES) == 0);
}

/* Sets a byte within a handle, to be logged later. */
static int set_later(struct engine *e, struct nvj_handle *h, uint64_t block, unsigned at,
		     uint8_t value)
{
	expect(nvj_access(h, block, e->block[block]) == 0);
	e->block[block][at] = value;
	return nvj_log_later(h, block, e->block[block]);
}

static uint64_t put_later(struct engine *e, uint64_t block, unsigned at, uint8_t value)
{
	struct nvj_handle h;

	expect(nvj_start(e->journal, &h, NVJ_BLOCK_CREDITS) == 0);
	expect(set_later(e, &h, block, at, value) == WAITS);
	return nvj_stop(&h);
}

/* An open handle of T that has changed block 1, and a commit of T that waits for it. */
static uint64_t close_with_open_handle(struct engine *e, struct nvj_handle *h,
				       struct engine_commit *call)
{
	uint64_t tid = engine_counts(e).running_tid;

	expect(nvj_start(e->journal, h, 2 * NVJ_BLOCK_CREDITS) == 0);
	expect(engine_set(e, h, 1, 0, e->block[1][0] + 1) == 2);
	engine_begin_commit(call, e, tid);
	engine_await_running(e, tid + 1);
	return tid;
}

static void many_handles_have_one_record(void)
{
	struct engine e;

	begin(&e);
	for (unsigned i = 0; i < 20; i++)
		put_later(&e, 5, 64 * i, (uint8_t)(i + 1));
	expect(engine_counts(&e).records == 0 && engine_counts(&e).record_lines == 0);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(engine_counts(&e).records == 1 && engine_counts(&e).record_lines == 21);
	/* The next transaction starts anew. */
	put_later(&e, 5, 0, 99);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(engine_counts(&e).records == 2 && engine_counts(&e).record_lines == 23);
	engine_crash(&e);
	expect(engine_home(&e, 5)[0] == 99);
	for (unsigned i = 1; i < 20; i++)
		expect(engine_home(&e, 5)[64 * i] == i + 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void what_is_not_committed_is_lost(void)
{
	struct engine e;

	begin(&e);
	put_later(&e, 5, 0, 1);
	engine_crash(&e);
	expect(engine_home(&e, 5)[0] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void close_writes_what_waits(void)
{
	struct engine e;

	begin(&e);
	put_later(&e, 5, 0, 1);
	expect(nvj_close(e.journal) == 0);
	expect(engine_home(&e, 5)[0] == 1);
	engine_end(&e);
}

/* The later transaction changes the block, and is not in the earlier one's record. */
static void a_later_transaction_logs_it_first(void)
{
	struct engine_commit call;
	struct nvj_handle old;
	struct engine e;
	uint64_t tid;

	begin(&e);
	put_later(&e, 5, 0, 1);
	put_later(&e, 6, 0, 1);
	tid = close_with_open_handle(&e, &old, &call);
	expect(put_later(&e, 5, 0, 2) == tid + 1);
	/* By the handle that has accessed it: block 6 waits for the leader. */
	expect(engine_counts(&e).records == 2);
	expect(nvj_stop(&old) == tid);
	engine_end_commit(&call);
	expect(nvj_committed(e.journal) == tid && engine_counts(&e).merged == 0);
	expect(engine_counts(&e).records == 3);
	engine_crash(&e);
	expect(engine_home(&e, 1)[0] == 1);
	expect(engine_home(&e, 5)[0] == 1 && engine_home(&e, 6)[0] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Of each transaction its own changes, also if a checkpoint comes between. */
static void versions_are_kept_apart(void)
{
	struct engine_commit call;
	struct nvj_handle old;
	struct engine e;
	uint64_t tid;

	begin(&e);
	put_later(&e, 5, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	for (uint8_t i = 2; i < 12; i++) {
		put_later(&e, 5, 0, i);
		put_later(&e, 5, 64, i);
		tid = close_with_open_handle(&e, &old, &call);
		put_later(&e, 5, 128, i);
		expect(nvj_stop(&old) == tid);
		engine_end_commit(&call);
		expect(engine_counts(&e).merged == 0);
		expect(nvj_checkpoint(e.journal) == 0);
		expect(engine_home(&e, 5)[0] == i && engine_home(&e, 5)[64] == i);
		expect(engine_home(&e, 5)[128] == (i == 2 ? 0 : i - 1));
	}
	expect(nvj_close(e.journal) == 0);
	expect(engine_home(&e, 5)[128] == 11);
	engine_end(&e);
}

/* As with nvj_log: an old handle that changes what a later one has changed. */
static void both_commit_together(bool old_first)
{
	struct engine_commit call;
	struct nvj_handle old, new;
	struct engine e;
	uint64_t tid;

	begin(&e);
	tid = close_with_open_handle(&e, &old, &call);
	if (old_first)
		expect(nvj_access(&old, 5, e.block[5]) == 0);
	expect(nvj_start(e.journal, &new, NVJ_BLOCK_CREDITS) == 0);
	expect(set_later(&e, &new, 5, 0, 2) == WAITS);
	/* At once: both have changed it. */
	expect(set_later(&e, &old, 5, 64, 1) == 3);
	expect(nvj_stop(&old) == tid);
	engine_await_running(&e, tid + 2);
	expect(nvj_committed(e.journal) < tid);
	expect(nvj_stop(&new) == tid + 1);
	engine_end_commit(&call);
	expect(nvj_committed(e.journal) == tid + 1 && engine_counts(&e).merged == 1);
	engine_crash(&e);
	expect(engine_home(&e, 5)[0] == 2 && engine_home(&e, 5)[64] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void what_is_freed_is_not_logged(void)
{
	struct nvj_handle h;
	struct engine e;

	begin(&e);
	put_later(&e, 5, 0, 1);
	expect(nvj_start(e.journal, &h, 1) == 0);
	expect(nvj_revoke(&h, 5) == 0);
	nvj_stop(&h);
	memset(e.block[5], 7, NVJ_BLOCK_BYTES);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(engine_counts(&e).records == 1 && engine_counts(&e).record_lines == 1);
	engine_crash(&e);
	expect(engine_home(&e, 5)[0] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* The revoke may not survive, so the earlier transaction's change must. */
static void what_a_later_transaction_frees_is_logged(void)
{
	struct engine_commit call;
	struct nvj_handle old, h;
	struct engine e;
	uint64_t tid;

	begin(&e);
	put_later(&e, 5, 0, 1);
	tid = close_with_open_handle(&e, &old, &call);
	expect(nvj_start(e.journal, &h, 1) == 0);
	expect(nvj_revoke(&h, 5) == 0);
	expect(nvj_stop(&h) == tid + 1);
	memset(e.block[5], 7, NVJ_BLOCK_BYTES);
	expect(nvj_stop(&old) == tid);
	engine_end_commit(&call);
	engine_crash(&e);
	expect(engine_home(&e, 5)[0] == 1 && engine_home(&e, 5)[1] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void what_waits_is_seen_and_not_at_home(void)
{
	const uint64_t named = 5;
	uint8_t image[NVJ_BLOCK_BYTES];
	struct engine e;

	begin(&e);
	put_later(&e, 5, 0, 1);
	expect(nvj_peek(e.journal, 5, image) && image[0] == 1);
	expect(nvj_bring_home(e.journal, &named, 1, true) == NVJ_EAGAIN);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_bring_home(e.journal, &named, 1, true) == 0);
	expect(engine_home(&e, 5)[0] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Handles have so much less. What does not fit is logged at once. */
static void no_more_waits_than_is_allowed(void)
{
	struct nvj_handle h;
	struct engine e;
	uint32_t most;

	engine_begin(&e, 2, 4096, false);
	most = nvj_max_credits(e.journal);
	/* Nothing may wait yet. */
	expect(nvj_start(e.journal, &h, NVJ_BLOCK_CREDITS) == 0);
	expect(set_later(&e, &h, 5, 0, 1) == 2);
	nvj_stop(&h);
	expect(nvj_close(e.journal) == 0);
	engine_open(&e);
	expect(nvj_allow_later(e.journal, most / 2 + 1) == NVJ_EINVAL);
	expect(nvj_allow_later(e.journal, 3 * NVJ_BLOCK_CREDITS - 1) == 0);
	expect(nvj_allow_later(e.journal, 1) == NVJ_EINVAL);
	expect(nvj_max_credits(e.journal) == most - 3 * NVJ_BLOCK_CREDITS + 1);
	for (unsigned round = 1; round < 30; round++) {
		uint8_t value = (uint8_t)(round + 1);

		put_later(&e, 5, 0, value);
		put_later(&e, 6, 0, value);
		put_later(&e, 5, 64, value); /* waits already */
		expect(nvj_start(e.journal, &h, NVJ_BLOCK_CREDITS) == 0);
		expect(set_later(&e, &h, 7, 0, value) == 2);
		nvj_stop(&h);
		expect(nvj_commit(e.journal, 0) == 0);
	}
	/* Nor if the handle has no credits for a whole block. */
	expect(nvj_start(e.journal, &h, NVJ_BLOCK_CREDITS - 1) == 0);
	expect(set_later(&e, &h, 5, 0, 77) == 2);
	nvj_stop(&h);
	expect(nvj_commit(e.journal, 0) == 0);
	/* All handles' credits are there. */
	expect(nvj_start(e.journal, &h, nvj_max_credits(e.journal)) == 0);
	nvj_stop(&h);
	expect(nvj_start(e.journal, &h, nvj_max_credits(e.journal) + 1) == NVJ_ENOSPC);
	expect(nvj_close(e.journal) == 0);
	expect(engine_home(&e, 5)[0] == 77 && engine_home(&e, 7)[0] == 30);
	engine_end(&e);
}

int main(void)
{
	many_handles_have_one_record();
	what_is_not_committed_is_lost();
	close_writes_what_waits();
	a_later_transaction_logs_it_first();
	versions_are_kept_apart();
	both_commit_together(false);
	both_commit_together(true);
	what_is_freed_is_not_logged();
	what_a_later_transaction_frees_is_logged();
	what_waits_is_seen_and_not_at_home();
	no_more_waits_than_is_allowed();
	return 0;
}
