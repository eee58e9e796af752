/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixture of the engine's tests: a journal in DRAM over a memory disk, and the
 * caller's own copy of the blocks. A crash is nvj_abandon: what the
 * region and the disk hold then is what recovery gets.
 */
#ifndef TEST_ENGINE_H
#define TEST_ENGINE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/nvjournal_user.h"
#include "lib/expect.h"

#define ENGINE_BLOCKS 512u

struct engine {
	struct nvju_region *region;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	struct nvju_workers *workers;
	struct nvj_options options;
	struct nvj *journal;
	struct nvj_report report; /* of the last open */
	uint8_t (*block)[NVJ_BLOCK_BYTES];
};

static inline void engine_open(struct engine *e)
{
	expect(nvj_open(&e->journal, nvju_region(e->region), &e->platform.platform, &e->options,
			&e->report) == 0);
	if (e->options.workers)
		expect(nvju_workers_start(&e->workers, e->journal,
					  NVJU_CHECKPOINT_WORKERS | NVJU_COMMIT_WORKERS) == 0);
}

static inline void engine_stop_workers(struct engine *e)
{
	nvju_workers_stop(e->workers);
	e->workers = NULL;
}

/* A new journal whose rings have ring_lines each, open. */
static inline void engine_begin(struct engine *e, unsigned partitions, uint64_t ring_lines,
				bool workers)
{
	/* Not by processor: where a test runs must not matter. */
	struct nvj_format_options format = {
		.partitions = partitions, .commits = 64, .placement = NVJ_PLACE_BLOCK};
	uint64_t bytes = NVJ_COMMITS_OFFSET + 64u * nvj_commit_lines(partitions) * NVJ_LINE_BYTES +
			 4096u + partitions * ring_lines * NVJ_LINE_BYTES;

	memset(e, 0, sizeof(*e));
	e->options.workers = workers;
	expect(nvju_region_dram(&e->region, (bytes + 4095) & ~UINT64_C(4095), NULL) == 0);
	expect(nvju_disk_memory(&e->disk, ENGINE_BLOCKS, NULL) == 0);
	nvju_platform_init(&e->platform, e->disk);
	nvju_uuid(format.uuid);
	expect(nvj_format(nvju_region(e->region), &format) == 0);
	e->block = calloc(ENGINE_BLOCKS, NVJ_BLOCK_BYTES);
	expect(e->block);
	engine_open(e);
}

static inline void engine_end(struct engine *e)
{
	engine_stop_workers(e);
	nvju_disk_close(e->disk);
	nvju_region_close(e->region);
	free(e->block);
}

/* The power fails, and the journal is opened again. */
static inline void engine_crash(struct engine *e)
{
	engine_stop_workers(e);
	nvj_abandon(e->journal);
	engine_open(e);
}

/* The block as it is on the disk. */
static inline const uint8_t *engine_home(struct engine *e, uint64_t block)
{
	return (const uint8_t *)nvju_disk_bytes(e->disk) + block * NVJ_BLOCK_BYTES;
}

static inline struct nvj_statistics engine_counts(struct engine *e)
{
	struct nvj_statistics statistics;

	nvj_statistics(e->journal, &statistics);
	return statistics;
}

/* Sets one byte of a block within a handle, and logs it. The lines the record took. */
static inline int engine_set(struct engine *e, struct nvj_handle *h, uint64_t block, unsigned at,
			     uint8_t value)
{
	expect(nvj_access(h, block, e->block[block]) == 0);
	e->block[block][at] = value;
	return nvj_log(h, block, e->block[block], NVJ_COMPARE);
}

/* The same as an operation of its own. Its transaction. */
static inline uint64_t engine_put(struct engine *e, uint64_t block, unsigned at, uint8_t value)
{
	struct nvj_handle h;

	expect(nvj_start(e->journal, &h, NVJ_BLOCK_CREDITS) == 0);
	expect(engine_set(e, &h, block, at, value) >= 0);
	return nvj_stop(&h);
}

/* A commit in a thread of its own. */
struct engine_commit {
	struct engine *e;
	uint64_t tid;
	int result;
	uint32_t ended;
	pthread_t thread;
};

static inline void *engine_commit_thread(void *argument)
{
	struct engine_commit *c = argument;

	c->result = nvj_commit(c->e->journal, c->tid);
	__atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static inline void engine_begin_commit(struct engine_commit *c, struct engine *e, uint64_t tid)
{
	*c = (struct engine_commit){.e = e, .tid = tid};
	expect(pthread_create(&c->thread, NULL, engine_commit_thread, c) == 0);
}

static inline void engine_end_commit(struct engine_commit *c)
{
	expect(pthread_join(c->thread, NULL) == 0);
	expect(c->result == 0);
}

static inline void engine_await_running(struct engine *e, uint64_t tid)
{
	while (engine_counts(e).running_tid < tid)
		usleep(100);
}

#endif
