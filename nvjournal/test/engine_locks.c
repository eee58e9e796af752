/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for locks are counted, by what the lock protects. */
#include "../core/journal.h"
#include "engine.h"

#define BLOCK 7u

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
	pthread_t thread;

	nvj_lock(lock, &e->journal->platform);
	expect(pthread_create(&thread, NULL, put, e) == 0);
	/* The state when the thread has looked a while, and sleeps. */
	for (unsigned i = 0; nvj_load(&lock->state) != 2 && i < 100000; i++)
		usleep(100);
	nvj_unlock(lock, &e->journal->platform);
	expect(pthread_join(thread, NULL) == 0);
	after = engine_counts(e);
	for (unsigned k = 0; k < NVJ_LOCK_KINDS; k++) {
		expect(after.lock_waits[k] - before.lock_waits[k] == (k == kind));
		expect((after.lock_wait_ns[k] > before.lock_wait_ns[k]) == (k == kind));
	}
}

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
	expect(nvj_close(j) == 0);
	engine_end(&e);
	return 0;
}
