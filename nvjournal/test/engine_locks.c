/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for locks are counted, by what the lock protects. With NVJ_LOCK_TIMES (the variant
 * times), holds are counted and measured in the same way.
 */
#include "../core/journal.h"
#include "engine.h"

#define BLOCK 7u

/* The time, and when the last owner of the lock took it. */
#ifdef NVJ_LOCK_TIMES
#define NOW nvj_ticks()
#define SINCE(lock) (lock)->since
#else
#define NOW 0
#define SINCE(lock) 0
#endif

static void *put(void *argument)
{
	struct engine *e = argument;

	engine_put(e, BLOCK, 0, (uint8_t)(e->block[BLOCK][0] + 1));
	return NULL;
}

/* A thread waits for the lock, which is of this kind. */
static void wait_for(struct engine *e, struct nvj_lock *lock, enum nvj_lock_kind kind)
{
	struct nvj_statistics before = engine_counts(e), after;
	uint64_t released;
	pthread_t thread;

	nvj_lock(lock, &e->journal->platform);
	expect(pthread_create(&thread, NULL, put, e) == 0);
	/* The state when the thread has looked a while, and sleeps. */
	for (unsigned i = 0; nvj_load(&lock->state) != 2 && i < 100000; i++)
		usleep(100);
	released = NOW;
	nvj_unlock(lock, &e->journal->platform);
	expect(pthread_join(thread, NULL) == 0);
	expect(SINCE(lock) >= released);
	after = engine_counts(e);
	for (unsigned k = 0; k < NVJ_LOCK_KINDS; k++) {
		expect(after.lock_waits[k] - before.lock_waits[k] == (k == kind));
		expect((after.lock_wait_ns[k] > before.lock_wait_ns[k]) == (k == kind));
	}
}

#ifdef NVJ_LOCK_TIMES
static uint64_t ticks_of(const struct nvj *j, enum nvj_lock_kind kind)
{
	uint64_t ticks = 0;

	for (unsigned i = 0; i < NVJ_CPUS; i++)
		ticks += nvj_load(&j->cpu[i].lock_hold_ticks[kind]);
	return ticks;
}

static uint64_t longest_of(const struct nvj *j, enum nvj_lock_kind kind)
{
	uint64_t longest = 0;

	for (unsigned i = 0; i < NVJ_CPUS; i++)
		if (nvj_load(&j->cpu[i].lock_longest_ticks[kind]) > longest)
			longest = nvj_load(&j->cpu[i].lock_longest_ticks[kind]);
	return longest;
}

/*
 * Holds the lock until the processor's counter has advanced by so many ticks. They are counted
 * from the time that the lock has noted: the thread may wait for a processor before it.
 */
static void hold(struct nvj *j, struct nvj_lock *lock, uint64_t ticks)
{
	uint64_t before = nvj_ticks();

	nvj_lock(lock, &j->platform);
	expect(lock->since >= before);
	while (nvj_ticks_between(lock->since, nvj_ticks()) < ticks)
		;
	nvj_unlock(lock, &j->platform);
}

static void check_holds(struct nvj *j, struct nvj_lock *lock, enum nvj_lock_kind kind)
{
	struct nvj_statistics before, after;
	uint64_t ticks, longest;

	nvj_statistics(j, &before);
	ticks = ticks_of(j, kind);
	expect(longest_of(j, kind) == 0);
	hold(j, lock, 50000);
	hold(j, lock, 3000);
	/* An attempt that fails is no hold. */
	expect(nvj_try_lock(lock));
	expect(!nvj_try_lock(lock));
	nvj_unlock(lock, &j->platform);

	ticks = ticks_of(j, kind) - ticks;
	longest = longest_of(j, kind);
	/* The counter advances further, but not by hours. */
	expect(ticks < UINT64_C(1) << 44);
	expect(longest >= 50000 && ticks >= longest + 3000);
	nvj_statistics(j, &after);
	for (unsigned k = 0; k < NVJ_LOCK_KINDS; k++) {
		expect(after.lock_holds[k] - before.lock_holds[k] == (k == kind ? 3 : 0));
		expect((after.lock_longest_ns[k] > 0) == (k == kind));
	}
	expect(after.lock_hold_ns[kind] >= after.lock_longest_ns[kind]);
	/* A reading begins a new longest hold, and is not counted itself. */
	nvj_statistics(j, &before);
	expect(before.lock_longest_ns[kind] == 0 && longest_of(j, kind) == 0);
	expect(memcmp(before.lock_holds, after.lock_holds, sizeof(after.lock_holds)) == 0);
}

static uint64_t clock_ns;

static uint64_t read_clock(void *context)
{
	(void)context;
	return clock_ns;
}

/* Ticks become nanoseconds by what both clocks say of the journal's life. */
static void check_scale(struct nvj *j)
{
	const uint64_t life = UINT64_C(1) << 50; /* so long that running this takes no time */
	uint64_t (*now_ns)(void *context) = j->platform.now_ns;

	j->platform.now_ns = read_clock;
	for (uint64_t by = 1; by <= 16; by *= 4) {
		uint64_t ns;

		clock_ns = j->opened_ns + life / by;
		j->opened_ticks = nvj_ticks() - life;
		ns = nvj_ticks_ns(j, life);
		expect(ns <= life / by + life / 1000 && ns >= life / by - life / 1000);
		ns = nvj_ticks_ns(j, 1000000);
		expect(ns <= 1000000 / by && ns >= 990000 / by);
		expect(nvj_ticks_ns(j, 0) == 0);
	}
	j->platform.now_ns = now_ns;
}
#else
static void check_holds(struct nvj *j, struct nvj_lock *lock, enum nvj_lock_kind kind)
{
	struct nvj_statistics s;

	/* An engine without them does not pay for them. */
	_Static_assert(sizeof(struct nvj_lock) == 4, "a lock");
	(void)lock;
	nvj_statistics(j, &s);
	expect(s.lock_holds[kind] == 0 && s.lock_hold_ns[kind] == 0 &&
	       s.lock_longest_ns[kind] == 0);
}

static void check_scale(struct nvj *j)
{
	(void)j;
}
#endif

int main(void)
{
	struct nvj_partition *p;
	struct nvj *j;
	struct engine e;

	engine_begin(&e, 2, 4096, false);
	j = e.journal;
	p = &j->partition[nvj_partition_of(j, BLOCK)];
	wait_for(&e, &p->buckets[BLOCK * NVJ_HASH >> p->bucket_shift].lock, NVJ_LOCK_BUCKET);
	/* The block has an entry now. */
	wait_for(&e, &nvj_block_find(j, p, BLOCK)->lock, NVJ_LOCK_BLOCK);
	expect(nvj_commit(j, 0) == 0 && nvj_checkpoint(j) == 0);
	/* The next change adds it to the dirty list again. */
	wait_for(&e, &p->list_lock, NVJ_LOCK_LISTS);
	check_holds(j, &p->list_lock, NVJ_LOCK_LISTS);
	check_holds(j, &p->buckets[0].lock, NVJ_LOCK_BUCKET);
	check_holds(j, &nvj_block_find(j, p, BLOCK)->lock, NVJ_LOCK_BLOCK);
	check_holds(j, &j->credit_lock, NVJ_LOCK_OTHER);
	check_scale(j);
	expect(nvj_close(j) == 0);
	engine_end(&e);
	return 0;
}
