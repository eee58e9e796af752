/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations: what has been reserved begins without waiting, whoever waits for
 * whom, above all while before_commit waits for it.
 */
#include "engine.h"

#include <errno.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

/* Whoever waits longer hangs. */
#define HANG_SECONDS 60

static void expect_soon(sem_t *semaphore)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += HANG_SECONDS;
	while (sem_timedwait(semaphore, &until))
		expect(errno == EINTR);
}

/* A handle with credits to spare, ended, and the reservation that it left. */
static void reserve(struct engine *e, struct nvj_reserved *r, uint32_t credits)
{
	struct nvj_handle h;

	expect(nvj_start(e->journal, &h, credits + 20) == 0);
	expect(nvj_reserve(&h, r, credits) == 0);
	nvj_stop(&h);
}

static void credits_change_sides(void)
{
	struct engine e;
	struct nvj_handle h;
	struct nvj_reserved r;
	uint64_t tid;

	engine_begin(&e, 2, 4096, false);
	expect(nvj_start(e.journal, &h, 100) == 0);
	expect(nvj_reserve(&h, &r, 101) == NVJ_ENOSPC);
	expect(nvj_reserve(&h, &r, 97) == 0);
	expect(engine_set(&e, &h, 1, 0, 1) == 2);
	expect(engine_set(&e, &h, 3, 0, 1) == NVJ_ENOSPC); /* one is left */
	tid = nvj_stop(&h);
	expect(nvj_commit(e.journal, tid) == 0 && nvj_committed(e.journal) == tid);
	expect(nvj_tail(e.journal) < tid && nvj_checkpoint(e.journal) == 0);
	expect(nvj_tail(e.journal) == tid);
	expect(nvj_close(e.journal) == NVJ_EBUSY);
	/* In the transaction that runs by now, with what was reserved and no more. */
	expect(nvj_start_reserved(&r, &h) == 0);
	expect(engine_set(&e, &h, 3, 64, 2) > 0);
	memset(e.block[5], 5, NVJ_BLOCK_BYTES);
	expect(nvj_access(&h, 5, e.block[5]) == 0);
	expect(nvj_log(&h, 5, e.block[5], NVJ_ALL_LINES) == NVJ_BLOCK_CREDITS);
	expect(nvj_access(&h, 7, e.block[7]) == 0);
	expect(nvj_log(&h, 7, e.block[5], NVJ_ALL_LINES) == NVJ_ENOSPC);
	expect(nvj_close(e.journal) == NVJ_EBUSY);
	expect(nvj_stop(&h) == tid + 1);
	expect(nvj_commit(e.journal, 0) == 0);
	reserve(&e, &r, 40);
	nvj_unreserve(&r);
	engine_crash(&e);
	expect(engine_home(&e, 1)[0] == 1 && engine_home(&e, 3)[64] == 2 &&
	       engine_home(&e, 5)[4095] == 5);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

struct waiter {
	struct engine *e;
	sem_t began;
	pthread_t thread;
	int result;
};

static void *start_all(void *argument)
{
	struct waiter *w = argument;
	struct nvj_handle h;

	w->result = nvj_start(w->e->journal, &h, nvj_max_credits(w->e->journal));
	sem_post(&w->began);
	if (!w->result)
		nvj_stop(&h);
	return NULL;
}

/* Reserved credits are taken: who wants all of them waits until they are given up, or used. */
static void reserved_credits_are_taken(bool used)
{
	struct engine e;
	struct nvj_handle h;
	struct nvj_reserved r;
	struct waiter w = {.e = &e};
	int began;

	engine_begin(&e, 1, 4096, false);
	reserve(&e, &r, 200);
	expect(sem_init(&w.began, 0, 0) == 0);
	expect(pthread_create(&w.thread, NULL, start_all, &w) == 0);
	usleep(30000);
	expect(sem_getvalue(&w.began, &began) == 0 && began == 0);
	if (used) {
		expect(nvj_start_reserved(&r, &h) == 0);
		usleep(30000);
		expect(sem_getvalue(&w.began, &began) == 0 && began == 0);
		nvj_stop(&h);
	} else {
		nvj_unreserve(&r);
	}
	expect_soon(&w.began);
	expect(pthread_join(w.thread, NULL) == 0 && w.result == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* --- before_commit waits for another thread's reserved handle --------------- */

static struct data {
	struct engine *e;
	struct nvj_reserved reserved;
	sem_t asked, done;
	pthread_t thread;
	uint64_t tid;       /* of the reserved handle */
	uint64_t asked_tid; /* what before_commit was called with, the first time */
} data;

/* Whatever writes the file data, and needs a handle at its end. */
static void *write_data(void *argument)
{
	struct nvj_handle h;

	(void)argument;
	expect_soon(&data.asked);
	expect(nvj_start_reserved(&data.reserved, &h) == 0);
	data.tid = h.tid;
	memset(data.e->block[400], 0x40, NVJ_BLOCK_BYTES);
	expect(nvj_create(&h, 400) == 0);
	expect(nvj_log(&h, 400, data.e->block[400], NVJ_COMPARE) == NVJ_BLOCK_CREDITS);
	nvj_stop(&h);
	sem_post(&data.done);
	return NULL;
}

static int before_commit(void *context, uint64_t tid)
{
	(void)context;
	if (__atomic_load_n(&data.asked_tid, __ATOMIC_RELAXED))
		return 0;
	__atomic_store_n(&data.asked_tid, tid, __ATOMIC_RELAXED);
	sem_post(&data.asked);
	expect_soon(&data.done);
	return 0;
}

static void data_begin(struct engine *e, uint64_t ring_lines, bool workers)
{
	memset(&data, 0, sizeof(data));
	engine_begin(e, 1, ring_lines, workers);
	engine_stop_workers(e);
	expect(nvj_close(e->journal) == 0);
	e->platform.platform.before_commit = before_commit;
	engine_open(e);
	data.e = e;
	expect(sem_init(&data.asked, 0, 0) == 0 && sem_init(&data.done, 0, 0) == 0);
	reserve(e, &data.reserved, NVJ_BLOCK_CREDITS);
	expect(pthread_create(&data.thread, NULL, write_data, NULL) == 0);
}

/* All is committed by now; what the reserved handle logged survives. */
static void data_end(struct engine *e)
{
	expect(pthread_join(data.thread, NULL) == 0);
	expect(data.asked_tid != 0);
	expect(nvj_commit(e->journal, 0) == 0);
	engine_crash(e);
	expect(engine_home(e, 400)[0] == 0x40 && engine_home(e, 400)[4095] == 0x40);
	engine_stop_workers(e);
	expect(nvj_close(e->journal) == 0);
	engine_end(e);
}

static void a_commit_waits_for_a_reserved_handle(void)
{
	struct engine e;
	uint64_t tid;

	data_begin(&e, 4096, false);
	tid = engine_put(&e, 2, 0, 2);
	expect(nvj_commit(e.journal, tid) == 0);
	expect(data.tid == tid + 1 && data.asked_tid == tid);
	data_end(&e);
}

/* The ring is full: the commit that shall make room waits for who logs into it. Returns whether a
 * handle waited for room. */
static bool tight(bool workers)
{
	struct engine e;
	bool waited;

	data_begin(&e, 1024, workers);
	/* 65 lines each: the tenth makes it tight, and the next waits for room. */
	for (unsigned i = 0; i < 40; i++) {
		struct nvj_handle h;

		memset(e.block[i], (int)i + 1, NVJ_BLOCK_BYTES);
		expect(nvj_start(e.journal, &h, NVJ_BLOCK_CREDITS) == 0);
		expect(nvj_create(&h, i) == 0);
		expect(nvj_log(&h, i, e.block[i], NVJ_COMPARE) == NVJ_BLOCK_CREDITS);
		nvj_stop(&h);
	}
	waited = engine_counts(&e).start_waits > 0;
	expect(nvj_aborted(e.journal) == 0);
	data_end(&e);
	return waited;
}

/* Workers on other processors may make room before anybody waits, but not each time. */
static void tight_with_workers(void)
{
	unsigned runs = 0;

	while (!tight(true))
		expect(++runs < 50);
}

/* Two handles of following transactions, and a commit that must merge a third. */
static uint64_t shut_gate(struct engine *e, struct engine_commit *call, struct nvj_handle *third)
{
	struct nvj_handle first, second;
	uint64_t tid = engine_counts(e).running_tid;

	expect(nvj_start(e->journal, &first, 20) == 0 && first.tid == tid);
	expect(engine_set(e, &first, 1, 0, 1) == 2);
	engine_begin_commit(call, e, tid);
	engine_await_running(e, tid + 1);
	expect(nvj_start(e->journal, &second, 20) == 0);
	expect(engine_set(e, &second, 7, 0, 2) == 2);
	expect(engine_set(e, &first, 7, 64, 1) == 2);
	nvj_stop(&first);
	engine_await_running(e, tid + 2);
	expect(nvj_start(e->journal, third, 20) == 0);
	expect(engine_set(e, third, 9, 0, 3) == 2);
	expect(engine_set(e, &second, 9, 64, 2) == 2);
	nvj_stop(&second);
	engine_await_running(e, tid + 3);
	return tid;
}

/*
 * While the gate is shut a reserved handle joins the last transaction of the
 * group though that is closed. So it may want what the open handle has changed.
 */
static void a_reserved_handle_passes_the_gate(void)
{
	struct engine e;
	struct nvj_handle third, h;
	struct nvj_reserved r[2];
	struct engine_commit call;
	uint64_t tid;

	engine_begin(&e, 1, 4096, false);
	reserve(&e, &r[0], 20);
	reserve(&e, &r[1], 20);
	tid = shut_gate(&e, &call, &third);
	for (int i = 0; i < 2; i++) {
		expect(nvj_start_reserved(&r[i], &h) == 0 && h.tid == tid + 2);
		expect(engine_set(&e, &h, 9, 128, (uint8_t)(4 + i)) == 2);
		expect(engine_set(&e, &h, 1, 128, (uint8_t)(4 + i)) == 2);
		expect(nvj_stop(&h) == tid + 2);
	}
	expect(nvj_committed(e.journal) < tid);
	expect(engine_set(&e, &third, 1, 192, 6) == 2);
	expect(nvj_stop(&third) == tid + 2);
	engine_end_commit(&call);
	expect(nvj_committed(e.journal) == tid + 2 && engine_counts(&e).merged == 2);
	engine_crash(&e);
	expect(engine_home(&e, 9)[128] == 5 && engine_home(&e, 1)[128] == 5 &&
	       engine_home(&e, 1)[192] == 6);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Three have merged: the gate is open again before before_commit waits. */
static void a_merged_commit_waits_for_a_reserved_handle(void)
{
	struct engine e;
	struct nvj_handle third, h;
	struct engine_commit call;
	uint64_t tid;

	data_begin(&e, 4096, false);
	tid = shut_gate(&e, &call, &third);
	nvj_stop(&third);
	while (!__atomic_load_n(&data.asked_tid, __ATOMIC_RELAXED))
		usleep(100);
	/* And so others go on, too. */
	expect(nvj_start(e.journal, &h, 20) == 0);
	nvj_stop(&h);
	engine_end_commit(&call);
	expect(data.asked_tid == tid + 2 && data.tid == tid + 3);
	expect(nvj_committed(e.journal) == tid + 2 && engine_counts(&e).merged == 2);
	data_end(&e);
}

static void an_abort_uses_a_reservation_up(void)
{
	struct engine e;
	struct nvj_handle h;
	struct nvj_reserved r, other;

	engine_begin(&e, 1, 4096, false);
	reserve(&e, &r, 20);
	reserve(&e, &other, 20);
	nvj_abort(e.journal, NVJ_EIO);
	expect(nvj_start_reserved(&r, &h) == NVJ_EROFS);
	expect(nvj_close(e.journal) == NVJ_EBUSY);
	nvj_unreserve(&other);
	expect(nvj_close(e.journal) == NVJ_EIO);
	engine_end(&e);
}

int main(void)
{
	credits_change_sides();
	reserved_credits_are_taken(false);
	reserved_credits_are_taken(true);
	a_commit_waits_for_a_reserved_handle();
	expect(tight(false));
	tight_with_workers();
	a_reserved_handle_passes_the_gate();
	a_merged_commit_waits_for_a_reserved_handle();
	an_abort_uses_a_reservation_up();
	return 0;
}
