/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting without sleeping (core/spin.h), with a clock that stands still. */
#include "engine.h"
#include "../core/spin.h"

#include <unistd.h>

/* Only the thread of a test is alone on its processor. */
static __thread bool tests;
static unsigned asked;
static struct nvj_handle *stops; /* when the test is asked */
static struct engine *stops_of;

static bool alone(void *context)
{
	uint64_t tid;

	(void)context;
	if (!tests)
		return false;
	asked++;
	if (stops) {
		tid = nvj_stop(stops);
		stops = NULL;
		while (nvj_committed(stops_of->journal) < tid)
			usleep(100);
	}
	return true;
}

static uint64_t stands_still(void *context)
{
	(void)context;
	return 1;
}

static unsigned one_processor(void *context)
{
	(void)context;
	return 0;
}

/* An open handle of T, and a commit of T that waits for it. Returns T. */
static uint64_t begin(struct engine *e, struct nvj_handle *old, struct engine_commit *call)
{
	uint64_t tid;

	engine_begin(e, 1, 4096, false);
	expect(nvj_close(e->journal) == 0);
	e->platform.platform.alone = alone;
	e->platform.platform.now_ns = stands_still;
	e->platform.platform.cpu = one_processor;
	engine_open(e);
	tid = engine_counts(e).running_tid;
	expect(nvj_start(e->journal, old, 20) == 0);
	expect(engine_set(e, old, 1, 0, 1) == 2);
	engine_begin_commit(call, e, tid);
	engine_await_running(e, tid + 1);
	tests = true;
	asked = 0;
	stops = NULL;
	stops_of = e;
	return tid;
}

static void end(struct engine *e, struct engine_commit *call)
{
	engine_end_commit(call);
	expect(engine_counts(e).merged == 0 && engine_counts(e).start_waits == 0);
	expect(nvj_close(e->journal) == 0);
	engine_end(e);
	tests = false;
}

static void a_handle_waits_until_a_commit_has_its_handles(void)
{
	struct engine e;
	struct nvj_handle old, new;
	struct engine_commit call;
	uint64_t tid = begin(&e, &old, &call);

	stops = &old;
	expect(nvj_start(e.journal, &new, 20) == 0);
	expect(asked == 1);
	expect(nvj_committed(e.journal) == tid);
	expect(nvj_stop(&new) == tid); /* it has logged nothing */
	/* Now no handle waits. */
	expect(nvj_start(e.journal, &new, 20) == 0 && asked == 1);
	(void)nvj_stop(&new);
	end(&e, &call);
}

static void after_a_wait_in_vain_the_next_handles_do_not_wait(void)
{
	struct engine e;
	struct nvj_handle old, new[8];
	struct engine_commit call;
	uint64_t tid = begin(&e, &old, &call);
	/* In vain are the handles 0, 2, 5: one more is let through, then two more. */
	static const unsigned in_vain[8] = {1, 1, 2, 2, 2, 3, 3, 3};

	for (unsigned i = 0; i < 8; i++) {
		expect(nvj_start(e.journal, &new[i], 20) == 0);
		expect(asked == in_vain[i] * NVJ_SPIN_LOOKS);
	}
	for (unsigned i = 0; i < 8; i++)
		(void)nvj_stop(&new[i]);
	expect(nvj_committed(e.journal) < tid);
	expect(nvj_stop(&old) == tid);
	end(&e, &call);
}

int main(void)
{
	a_handle_waits_until_a_commit_has_its_handles();
	after_a_wait_in_vain_the_next_handles_do_not_wait();
	return 0;
}
