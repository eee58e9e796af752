/* SPDX-License-Identifier: Apache-2.0 */
/* The disk fails: no more changes, nobody waits for ever, and the region keeps what is not at home.
 */
#include "engine.h"

#include <unistd.h>

static int told, told_error;
static uint64_t told_block;

static void aborted(void *context, int error, uint64_t block)
{
	(void)context;
	told++;
	told_error = error;
	told_block = block;
}

static void begin(struct engine *e, bool workers)
{
	engine_begin(e, 2, NVJ_MIN_RING_LINES, workers);
	engine_stop_workers(e);
	expect(nvj_close(e->journal) == 0);
	e->platform.platform.aborted = aborted;
	told = 0;
	engine_open(e);
}

static void nothing_is_lost_after(const struct nvju_disk_faults *faults)
{
	const struct nvju_disk_faults none = {0};
	struct engine e;
	struct nvj_handle h;

	begin(&e, false);
	for (unsigned i = 0; i < 100; i++)
		engine_put(&e, i, i, 5);
	expect(nvj_commit(e.journal, 0) == 0);
	engine_put(&e, 1, 2000, 6);
	nvju_disk_fail(e.disk, faults);
	expect(nvj_checkpoint(e.journal) == NVJ_EIO);
	expect(told == 1 && told_error == NVJ_EIO && nvj_aborted(e.journal) == NVJ_EIO);
	expect(faults->next_flush ? told_block == ~UINT64_C(0) : told_block < 100);
	expect(nvj_start(e.journal, &h, 1) == NVJ_EROFS);
	expect(nvj_commit(e.journal, 0) == NVJ_EIO);
	expect(nvj_checkpoint(e.journal) == NVJ_EIO);
	expect(nvj_close(e.journal) == NVJ_EIO);
	expect(told == 1);

	nvju_disk_fail(e.disk, &none);
	engine_open(&e);
	for (unsigned i = 0; i < 100; i++)
		expect(engine_home(&e, i)[i] == 5);
	expect(engine_home(&e, 1)[2000] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void an_open_handle_may_stop(void)
{
	struct engine e;
	struct nvj_handle h;

	begin(&e, false);
	expect(nvj_start(e.journal, &h, 10) == 0);
	expect(nvj_access(&h, 1, e.block[1]) == 0);
	nvj_abort(e.journal, NVJ_EIO);
	e.block[1][0] = 1;
	expect(nvj_log(&h, 1, e.block[1], NVJ_COMPARE) == NVJ_EROFS);
	expect(nvj_access(&h, 2, e.block[2]) == NVJ_EROFS);
	expect(nvj_create(&h, 2) == NVJ_EROFS);
	expect(nvj_revoke(&h, 2) == NVJ_EROFS);
	expect(nvj_extend(&h, 1) == NVJ_EROFS);
	/* Nothing was logged, but something was refused: that is not committed. */
	expect(nvj_commit(e.journal, nvj_stop(&h)) == NVJ_EIO);
	expect(told == 1 && told_block == ~UINT64_C(0));
	nvj_abandon(e.journal);
	engine_end(&e);
}

struct waiter {
	struct engine *e;
	uint64_t tid;
	int result;
	pthread_t thread;
};

static void *start(void *argument)
{
	struct waiter *w = argument;
	struct nvj_handle h;

	w->result = nvj_start(w->e->journal, &h, nvj_max_credits(w->e->journal));
	return NULL;
}

static void *commit(void *argument)
{
	struct waiter *w = argument;

	w->result = nvj_commit(w->e->journal, w->tid);
	return NULL;
}

/* One waits for credits, one leads a commit, two follow it: all are let go. */
static void an_abort_lets_everybody_go(void)
{
	struct engine e;
	struct nvj_handle h;
	struct waiter starter, committer[3];

	begin(&e, false);
	expect(nvj_start(e.journal, &h, 10) == 0);
	expect(engine_set(&e, &h, 1, 0, 1) == 2);
	starter = (struct waiter){.e = &e};
	expect(pthread_create(&starter.thread, NULL, start, &starter) == 0);
	for (int i = 0; i < 3; i++) {
		committer[i] = (struct waiter){.e = &e, .tid = h.tid};
		expect(pthread_create(&committer[i].thread, NULL, commit, &committer[i]) == 0);
	}
	usleep(30000);
	nvj_abort(e.journal, NVJ_EIO);
	expect(pthread_join(starter.thread, NULL) == 0 && starter.result == NVJ_EROFS);
	for (int i = 0; i < 3; i++)
		expect(pthread_join(committer[i].thread, NULL) == 0 &&
		       committer[i].result == NVJ_EIO);
	nvj_stop(&h);
	nvj_abandon(e.journal);
	engine_open(&e);
	expect(engine_home(&e, 1)[0] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* The workers find the disk broken while handles wait for room. */
static void who_waits_for_room_learns_of_it(bool workers)
{
	const struct nvju_disk_faults faults = {.next_write = 3, .forever = true};
	struct engine e;
	int error = 0;

	begin(&e, workers);
	nvju_disk_fail(e.disk, &faults);
	for (unsigned n = 0; n < 100000 && !error; n++) {
		struct nvj_handle h;

		error = nvj_start(e.journal, &h, 3);
		if (error)
			break;
		if (!nvj_access(&h, n % 100, e.block[n % 100])) {
			e.block[n % 100][0]++;
			(void)nvj_log(&h, n % 100, e.block[n % 100], 1);
		}
		nvj_stop(&h);
	}
	engine_stop_workers(&e); /* one of them may still be telling */
	expect(error == NVJ_EROFS && told == 1);
	nvj_abandon(e.journal);
	engine_end(&e);
}

static int no_data(void *context, uint64_t tid)
{
	(void)context;
	(void)tid;
	return NVJ_EIO;
}

static void data_that_fails_is_not_committed(void)
{
	struct engine e;

	begin(&e, false);
	expect(nvj_close(e.journal) == 0);
	e.platform.platform.before_commit = no_data;
	engine_open(&e);
	engine_put(&e, 1, 0, 1);
	expect(nvj_commit(e.journal, 0) == NVJ_EIO);
	e.platform.platform.before_commit = NULL;
	engine_crash(&e);
	expect(engine_home(&e, 1)[0] == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

int main(void)
{
	nothing_is_lost_after(&(struct nvju_disk_faults){.next_write = 1, .forever = true});
	nothing_is_lost_after(&(struct nvju_disk_faults){.next_write = 40, .torn = true});
	nothing_is_lost_after(&(struct nvju_disk_faults){.next_flush = 1});
	an_open_handle_may_stop();
	an_abort_lets_everybody_go();
	who_waits_for_room_learns_of_it(false);
	who_waits_for_room_learns_of_it(true);
	data_that_fails_is_not_committed();
	return 0;
}
