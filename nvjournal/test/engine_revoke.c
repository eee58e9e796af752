/* SPDX-License-Identifier: Apache-2.0 */
/* A block that is freed: what was logged of it goes home no more, and not too early. */
#include "engine.h"

#include <unistd.h>

static void free_block(struct engine *e, uint64_t block)
{
	struct nvj_handle h;

	expect(nvj_start(e->journal, &h, 1) == 0);
	expect(nvj_revoke(&h, block) == 0);
	nvj_stop(&h);
}

/* The block is the caller's now. */
static void write_home(struct engine *e, uint64_t block, uint8_t value)
{
	memset((uint8_t *)nvju_disk_bytes(e->disk) + block * NVJ_BLOCK_BYTES, value,
	       NVJ_BLOCK_BYTES);
}

static void a_revoked_block_is_not_replayed(void)
{
	struct engine e;

	engine_begin(&e, 2, 4096, false);
	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	free_block(&e, 6);
	expect(nvj_commit(e.journal, 0) == 0);
	write_home(&e, 6, 9);
	engine_crash(&e);
	expect(engine_home(&e, 6)[0] == 9 && e.report.revoked == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void a_revoked_block_is_not_checkpointed(void)
{
	struct engine e;
	uint8_t image[NVJ_BLOCK_BYTES];

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	free_block(&e, 6);
	expect(!nvj_peek(e.journal, 6, image));
	expect(nvj_commit(e.journal, 0) == 0);
	write_home(&e, 6, 9);
	expect(nvj_checkpoint(e.journal) == 0);
	expect(engine_home(&e, 6)[0] == 9 && engine_counts(&e).blocks_home == 0);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void a_revoke_that_did_not_commit_loses_nothing(void)
{
	struct engine e;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	free_block(&e, 6);
	/* The tail passes the update: it must be at home before. */
	expect(nvj_checkpoint(e.journal) == 0);
	expect(engine_home(&e, 6)[0] == 1);
	engine_crash(&e);
	expect(engine_home(&e, 6)[0] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

/* Freed and used again in one operation: only the lines after the revoke count, so all are logged.
 */
static void a_revoked_block_may_be_used_again(bool same_handle)
{
	struct engine e;
	struct nvj_handle h;

	engine_begin(&e, 1, 4096, false);
	engine_put(&e, 6, 3000, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(nvj_start(e.journal, &h, 70) == 0);
	expect(nvj_revoke(&h, 6) == 0);
	if (!same_handle) {
		nvj_stop(&h);
		expect(nvj_start(e.journal, &h, 70) == 0);
	}
	expect(engine_set(&e, &h, 6, 0, 2) == 3);
	nvj_stop(&h);
	expect(nvj_commit(e.journal, 0) == 0);
	engine_crash(&e);
	expect(memcmp(engine_home(&e, 6), e.block[6], NVJ_BLOCK_BYTES) == 0);
	expect(engine_home(&e, 6)[3000] == 1);
	expect(nvj_close(e.journal) == 0);
	engine_end(&e);
}

static void *checkpoint(void *argument)
{
	struct engine *e = argument;

	expect(nvj_checkpoint(e->journal) == 0);
	return NULL;
}

static int (*start_write)(void *context, unsigned queue, struct nvj_write *write);
static unsigned started; /* writes; atomic */

static int start_and_count(void *context, unsigned queue, struct nvj_write *write)
{
	int error = start_write(context, queue, write);

	__atomic_fetch_add(&started, 1, __ATOMIC_RELEASE);
	return error;
}

/* A write of it is under way as it is revoked: the commit returns after that has ended. */
static void commit_waits_for_a_write_of_a_revoked_block(void)
{
	const struct nvju_disk_model slow = {.channels = 1, .write_ns = 100000000};
	struct engine e;
	pthread_t thread;

	engine_begin(&e, 1, 4096, false);
	expect(nvj_close(e.journal) == 0);
	nvju_disk_close(e.disk);
	expect(nvju_disk_memory(&e.disk, ENGINE_BLOCKS, &slow) == 0);
	nvju_platform_init(&e.platform, e.disk);
	start_write = e.platform.platform.start_write;
	e.platform.platform.start_write = start_and_count;
	started = 0;
	engine_open(&e);

	engine_put(&e, 6, 0, 1);
	expect(nvj_commit(e.journal, 0) == 0);
	expect(pthread_create(&thread, NULL, checkpoint, &e) == 0);
	while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE))
		usleep(1000);
	free_block(&e, 6);
	expect(nvj_commit(e.journal, 0) == 0);
	write_home(&e, 6, 9);
	expect(pthread_join(thread, NULL) == 0);
	expect(nvju_disk_counts(e.disk).writes == 1);
	expect(engine_home(&e, 6)[0] == 9);
	expect(nvj_close(e.journal) == 0);
	expect(engine_home(&e, 6)[0] == 9);
	engine_end(&e);
}

int main(void)
{
	a_revoked_block_is_not_replayed();
	a_revoked_block_is_not_checkpointed();
	a_revoke_that_did_not_commit_loses_nothing();
	a_revoked_block_may_be_used_again(true);
	a_revoked_block_may_be_used_again(false);
	commit_waits_for_a_write_of_a_revoked_block();
	return 0;
}
