/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions that overlap: merging, images kept aside, who waits for whom. */
#include "engine.h"

#include <unistd.h>

/* An open handle of T, and a commit of T that waits for it. */
static uint64_t close_with_open_handle(struct engine *e, struct nvj_handle *h,
				       struct engine_commit *call)
{
	uint64_t tid = engine_counts(e).running_tid;

	expect(nvj_start(e->journal, h, 20) == 0);
	expect(engine_set(e, h, 1, 0, 1) == 2);
	engine_begin_commit(call, e, tid);
	engine_await_running(e, tid + 1);
	return tid;
}

static void the_next_transaction_runs_while_one_closes(void)
{
	struct engine e;
	struct nvj_handle old;
	struct engine_commit call;
	uint64_t tid, next;

	engine_begin(&e, 2, 4096, false);
	tid = close_with_open_handle(&e, &old, &call);
	next = engine_put(&e, 2, 0, 2);
	expect(next == tid + 1);
	expect(nvj_committed(e.journal) < tid);
	expect(nvj_stop(&old) == tid);
	engine_end_commit(&call);
	expect(nvj_committed(e.journal) == tid && engine_counts(&e).merged == 0);
	engine_crash(&e);
	expect(engine_home(&e, 1)[0] == 1 && engine_home(&e, 2)[0] == 0);
	/* It lies between low and high of the committed one: walked over, not replayed. */
	expect(e.report.uncommitted == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/*
 * A file system may log a handle's changes as late as it stops the handle, after other threads
 * have seen them.
 */
static void a_commit_waits_for_a_handle_that_has_not_logged(void)
{
	struct engine e;
	struct nvj_handle h;
	struct engine_commit call;
	uint64_t tid;

	engine_begin(&e, 2, 4096, false);
	tid = engine_counts(&e).running_tid;
	expect(nvj_start(e.journal, &h, 20) == 0);
	expect(nvj_access(&h, 1, e.block[1]) == 0);
	e.block[1][0] = 1;
	/* What was stopped before does not include it. */
	expect(nvj_commit(e.journal, 0) == 0 && engine_counts(&e).running_tid == tid);
	engine_begin_commit(&call, &e, tid);
	while (engine_counts(&e).running_tid == tid) {
		expect(!__atomic_load_n(&call.ended, __ATOMIC_ACQUIRE));
		usleep(100);
	}
	expect(nvj_log(&h, 1, e.block[1], NVJ_COMPARE) == 2);
	expect(nvj_stop(&h) == tid);
	engine_end_commit(&call);
	expect(nvj_committed(e.journal) == tid);
	engine_crash(&e);
	expect(engine_home(&e, 1)[0] == 1);
	/* Without open handles there is nothing to close. */
	tid = engine_counts(&e).running_tid;
	expect(nvj_commit(e.journal, tid) == 0 && engine_counts(&e).running_tid == tid);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void an_old_handle_that_wants_a_newer_block_merges(bool wants_first)
{
	struct engine e;
	struct nvj_handle old, new;
	struct engine_commit call;
	uint64_t tid;

	engine_begin(&e, 2, 4096, false);
	tid = close_with_open_handle(&e, &old, &call);
	if (wants_first)
		expect(nvj_access(&old, 7, e.block[7]) == 0);
	expect(nvj_start(e.journal, &new, 20) == 0);
	expect(engine_set(&e, &new, 7, 0, 2) == 2);
	expect(engine_set(&e, &new, 8, 0, 2) == 2);
	expect(engine_set(&e, &old, 7, 64, 1) == 2);
	expect(nvj_stop(&old) == tid);
	engine_await_running(&e, tid + 2);
	expect(nvj_committed(e.journal) < tid);
	expect(nvj_stop(&new) == tid + 1);
	engine_end_commit(&call);
	expect(nvj_committed(e.journal) == tid + 1 && engine_counts(&e).merged == 1);
	engine_crash(&e);
	expect(engine_home(&e, 7)[0] == 2 && engine_home(&e, 7)[64] == 1);
	expect(engine_home(&e, 8)[0] == 2 && engine_home(&e, 1)[0] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* How often the thread that starts and stops a handle has waited. */
static unsigned waits;
static __thread bool counts_waits;
static void (*platform_wait)(void *context, const uint32_t *word, uint32_t expected,
			     uint64_t timeout_ns);

static void count_and_wait(void *context, const uint32_t *word, uint32_t expected,
			   uint64_t timeout_ns)
{
	if (counts_waits)
		__atomic_add_fetch(&waits, 1, __ATOMIC_RELEASE);
	platform_wait(context, word, expected, timeout_ns);
}

static void *start_and_stop(void *argument)
{
	struct engine_commit *call = argument;
	struct nvj_handle h;

	counts_waits = true;
	call->result = nvj_start(call->e->journal, &h, 1);
	if (!call->result)
		nvj_stop(&h);
	return NULL;
}

/* Three transactions are the most: then new handles wait for the commit. */
static void the_gate_ends_merging(void)
{
	struct engine e;
	struct nvj_handle first, second, third;
	struct engine_commit call, late;
	uint64_t tid;

	engine_begin(&e, 1, 4096, false);
	expect(nvj_close(e.journal) == 0);
	platform_wait = e.platform.platform.wait;
	e.platform.platform.wait = count_and_wait;
	engine_open(&e);
	tid = close_with_open_handle(&e, &first, &call);
	expect(nvj_start(e.journal, &second, 20) == 0);
	expect(engine_set(&e, &second, 7, 0, 2) == 2);
	expect(engine_set(&e, &first, 7, 64, 1) == 2);
	nvj_stop(&first);
	engine_await_running(&e, tid + 2);
	expect(nvj_start(e.journal, &third, 20) == 0);
	expect(engine_set(&e, &third, 9, 0, 3) == 2);
	expect(engine_set(&e, &second, 9, 64, 2) == 2);
	nvj_stop(&second);
	engine_await_running(&e, tid + 3);
	late = (struct engine_commit){.e = &e};
	expect(pthread_create(&late.thread, NULL, start_and_stop, &late) == 0);
	/* The gate must not open before the thread has come to it. */
	while (!__atomic_load_n(&waits, __ATOMIC_ACQUIRE))
		usleep(100);
	expect(engine_counts(&e).start_waits == 0); /* counted when it is over */
	expect(nvj_stop(&third) == tid + 2);
	engine_end_commit(&call);
	expect(pthread_join(late.thread, NULL) == 0 && late.result == 0);
	expect(engine_counts(&e).start_waits == 1 && engine_counts(&e).merged == 2);
	expect(nvj_committed(e.journal) == tid + 2);
	engine_crash(&e);
	expect(engine_home(&e, 9)[0] == 3 && engine_home(&e, 9)[64] == 2);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void checkpoint_writes_what_is_committed_and_no_more(void)
{
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 3, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	engine_put(&e, 3, 0, 2);
	expect(nvj_commit(e.journal, 0) == 0);
	engine_put(&e, 3, 64, 3);
	expect(engine_counts(&e).frozen == 2);
	expect(nvj_checkpoint(e.journal) == 0);
	expect(engine_home(&e, 3)[0] == 2 && engine_home(&e, 3)[64] == 0);
	expect(engine_counts(&e).tail_tid == nvj_committed(e.journal));
	expect(engine_counts(&e).blocks_home == 1);
	engine_crash(&e);
	expect(engine_home(&e, 3)[0] == 2 && engine_home(&e, 3)[64] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static int data_count;

static int before_commit(void *context, uint64_t tid)
{
	(void)context;
	(void)tid;
	data_count++;
	return 0;
}

static void data_goes_before_each_commit(void)
{
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	expect(nvj_close(e.journal) == 0);
	e.platform.platform.before_commit = before_commit;
	engine_open(&e);
	engine_put(&e, 3, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0 && data_count == 1);
	expect(nvj_commit(e.journal, 0) == 0 && data_count == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Many ask at once for the commit of one transaction: it is done once. */
static void one_commit_serves_all(void)
{
	struct engine e;
	struct nvj_handle h;
	struct engine_commit call, follower[8];
	uint64_t tid;

	engine_begin(&e, 1, 4096, false);
	tid = close_with_open_handle(&e, &h, &call);
	for (int i = 0; i < 8; i++)
		engine_begin_commit(&follower[i], &e, tid);
	usleep(20000);
	nvj_stop(&h);
	engine_end_commit(&call);
	for (int i = 0; i < 8; i++)
		engine_end_commit(&follower[i]);
	expect(engine_counts(&e).transactions == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Of a transaction that closes, and in each of the counters of transactions. */
static void open_handles_are_seen(void)
{
	struct engine e;
	struct nvj_handle old;
	struct engine_commit call;

	engine_begin(&e, 2, 4096, false);
	for (int i = 0; i < 6; i++) {
		expect(!nvj_handles_open(e.journal));
		(void)close_with_open_handle(&e, &old, &call);
		engine_put(&e, 2, 0, (uint8_t)i);
		expect(nvj_handles_open(e.journal));
		nvj_stop(&old);
		expect(!nvj_handles_open(e.journal));
		engine_end_commit(&call);
		engine_put(&e, 1, 0, 0);
	}
	expect(nvj_start(e.journal, &old, 20) == 0);
	expect(nvj_handles_open(e.journal));
	nvj_stop(&old);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

int main(void)
{
	the_next_transaction_runs_while_one_closes();
	a_commit_waits_for_a_handle_that_has_not_logged();
	an_old_handle_that_wants_a_newer_block_merges(false);
	an_old_handle_that_wants_a_newer_block_merges(true);
	the_gate_ends_merging();
	checkpoint_writes_what_is_committed_and_no_more();
	data_goes_before_each_commit();
	one_commit_serves_all();
	open_handles_are_seen();
	return 0;
}
