/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caller knows of a block (core/known.h): handles that do not call the engine,
 * as those of the kernel's ext4 journal. Handles of two transactions are open at once, in one
 * thread, in an order that each test gives.
 */
#include "../core/known.h"
#include "engine.h"

#define WAITS ((int)NVJ_BLOCK_CREDITS)

static struct nvj_known known;
/* How often the engine was called: to access a block, and to log it. */
static unsigned accesses, logs;

static void begin(struct engine *e)
{
	engine_begin(e, 2, 4096, false);
	expect(nvj_allow_later(e->journal, 6 * NVJ_BLOCK_CREDITS) == 0);
	known = (struct nvj_known){0};
	accesses = logs = 0;
}

static void start(struct engine *e, struct nvj_handle *h)
{
	expect(nvj_start(e->journal, h, 2 * NVJ_BLOCK_CREDITS) == 0);
}

static void may_change(struct engine *e, struct nvj_handle *h)
{
	if (nvj_known_accessed(&known, h->tid))
		return;
	accesses++;
	nvj_known_begins(&known, h->tid);
	expect(nvj_access(h, 5, e->block[5]) == 0);
	nvj_known_has_access(&known, h->tid);
}

/* What nvj_log_later returned; 0: it was not called. */
static int has_changed(struct engine *e, struct nvj_handle *h)
{
	int lines;

	if (nvj_known_waits(&known, h->tid))
		return 0;
	logs++;
	lines = nvj_log_later(h, 5, e->block[5]);
	expect(lines > 0);
	if (lines == WAITS)
		nvj_known_will_log(&known, h->tid);
	return lines;
}

static uint64_t put(struct engine *e, unsigned at, uint8_t value)
{
	struct nvj_handle h;

	start(e, &h);
	may_change(e, &h);
	e->block[5][at] = value;
	(void)has_changed(e, &h);
	return nvj_stop(&h);
}

/* After a commit and a crash. */
static void expect_home(struct engine *e, uint8_t first, uint8_t second, uint8_t third)
{
	engine_crash(e);
	expect(engine_home(e, 5)[0] == first && engine_home(e, 5)[64] == second);
	expect(engine_home(e, 5)[128] == third);
	expect(nvj_close(e->journal) == 0);
	engine_end(e);
}

static void later_handles_need_no_engine(void)
{
	struct engine e;

	begin(&e);
	put(&e, 0, 1);
	put(&e, 64, 2);
	put(&e, 128, 3);
	expect(accesses == 1 && logs == 1);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(engine_counts(&e).records == 1);
	/* The next transaction does. */
	put(&e, 64, 4);
	expect(accesses == 2 && logs == 2);
	expect(nvj_commit(e.journal, 0) == 0);
	expect_home(&e, 1, 4, 3);
}

/*
 * Block 5 gets 1 in its first line. old is open in the transaction of this change, whose
 * commit waits for it; new is open in the next one. Returns the number of the first.
 */
static uint64_t begin_two(struct engine *e, struct engine_commit *call, struct nvj_handle *old,
			  struct nvj_handle *new, bool access_first)
{
	uint64_t tid;

	begin(e);
	tid = put(e, 0, 1);
	start(e, old);
	expect(old->tid == tid);
	if (access_first)
		may_change(e, old);
	engine_begin_commit(call, e, tid);
	engine_await_running(e, tid + 1);
	start(e, new);
	expect(new->tid == tid + 1);
	return tid;
}

/*
 * A handle of T has access, and changes the block after one of T + 1 has made the
 * engine write T's record of it.
 */
static void a_change_after_the_record_is_logged(bool access_first)
{
	struct engine_commit call;
	struct nvj_handle old, new;
	struct engine e;
	uint64_t tid = begin_two(&e, &call, &old, &new, access_first);

	may_change(&e, &new);
	expect(accesses == 2 && engine_counts(&e).records == 1);
	if (!access_first)
		may_change(&e, &old);
	expect(accesses == (access_first ? 2 : 3));
	e.block[5][64] = 2;
	expect(has_changed(&e, &old) == 2);
	expect(nvj_stop(&old) == tid);
	e.block[5][128] = 3;
	(void)has_changed(&e, &new);
	nvj_stop(&new);
	engine_end_commit(&call);
	expect_home(&e, 1, 2, 3);
}

/* The same if the later handle has only access. */
static void a_change_of_the_earlier_alone_is_logged(void)
{
	struct engine_commit call;
	struct nvj_handle old, new;
	struct engine e;
	uint64_t tid = begin_two(&e, &call, &old, &new, true);

	may_change(&e, &new);
	nvj_stop(&new);
	e.block[5][64] = 2;
	expect(has_changed(&e, &old) == 2);
	expect(nvj_stop(&old) == tid);
	engine_end_commit(&call);
	expect_home(&e, 1, 2, 0);
}

/* It is freed, and allocated again in the same transaction. */
static void what_was_freed_is_accessed_and_logged_again(void)
{
	struct nvj_handle h;
	struct engine e;

	begin(&e);
	put(&e, 0, 1);
	start(&e, &h);
	nvj_known_begins(&known, h.tid);
	nvj_known_forget(&known);
	expect(nvj_revoke(&h, 5) == 0);
	nvj_stop(&h);
	start(&e, &h);
	expect(!nvj_known_accessed(&known, h.tid) && !nvj_known_waits(&known, h.tid));
	nvj_known_begins(&known, h.tid);
	expect(nvj_create(&h, 5) == 0);
	nvj_known_has_access(&known, h.tid);
	memset(e.block[5], 0, NVJ_BLOCK_BYTES);
	e.block[5][64] = 2;
	expect(has_changed(&e, &h) == WAITS);
	nvj_stop(&h);
	put(&e, 128, 3);
	expect(accesses == 1 && logs == 2);
	expect(nvj_commit(e.journal, 0) == 0);
	expect_home(&e, 0, 2, 3);
}

/* A later transaction that frees it has had the engine write the record, too. */
static void a_change_after_a_later_revoke_is_not_taken_for_logged(void)
{
	struct engine_commit call;
	struct nvj_handle old, new;
	struct engine e;

	(void)begin_two(&e, &call, &old, &new, true);
	expect(nvj_known_begins(&known, new.tid));
	expect(!nvj_known_accessed(&known, old.tid) && !nvj_known_waits(&known, old.tid));
	nvj_known_forget(&known);
	expect(nvj_revoke(&new, 5) == 0);
	nvj_stop(&new);
	nvj_stop(&old);
	engine_end_commit(&call);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

int main(void)
{
	later_handles_need_no_engine();
	a_change_after_the_record_is_logged(true);
	a_change_after_the_record_is_logged(false);
	a_change_of_the_earlier_alone_is_logged();
	what_was_freed_is_accessed_and_logged_again();
	a_change_after_a_later_revoke_is_not_taken_for_logged();
	return 0;
}
