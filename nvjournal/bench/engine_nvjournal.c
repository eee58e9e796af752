/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvjournal as an engine of the comparison: records of lines, or of whole blocks.
 *
 * Option 1: the same engine with one lock, as ext4nvj's lock=one: the lock is held
 * for a whole operation, with its one fence, and for a commit. So a ratio to it shows
 * what the engine gains by its threads alone.
 */
#include "engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvjournal_user.h"

struct nvjournal {
	struct nvj *journal;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	bool one_lock;
	pthread_mutex_t lock __attribute__((aligned(128)));
};

static void lock(struct nvjournal *n)
{
	if (n->one_lock)
		pthread_mutex_lock(&n->lock);
}

static void unlock(struct nvjournal *n)
{
	if (n->one_lock)
		pthread_mutex_unlock(&n->lock);
}

static int failed(const char *what, int error)
{
	fprintf(stderr, "bench: nvjournal cannot %s: %s\n", what, nvj_strerror(error));
	return -1;
}

int nvjournal_open(struct engine *e, const struct bench_setup *s)
{
	/*
	 * Nothing is carried home while updates are measured: the rings have room, and a
	 * round with its warm-up makes fewer commits than 98 % of the slots.
	 */
	struct nvj_options options = {.checkpoint_percent = 98};
	struct nvj_format_options format = {
		.partitions = e->partitions, .placement = e->placement, .commits = NVJ_MAX_COMMITS};
	struct nvjournal *n = aligned_alloc(128, sizeof(*n));
	struct nvj_report report;
	int error;

	e->state = n;
	if (!n)
		return failed("begin", NVJ_ENOMEM);
	memset(n, 0, sizeof(*n));
	baseline_lock_init(&n->lock);
	n->one_lock = e->option == 1;
	error = nvju_disk_memory(&n->disk, s->threads * THREAD_STRIDE + 1, NULL);
	if (error)
		return failed("make a disk in memory", error);
	nvju_platform_init(&n->platform, n->disk);
	nvju_uuid(format.uuid);
	error = nvj_format(s->region, &format);
	if (error)
		return failed("format", error);
	error = nvj_open(&n->journal, s->region, &n->platform.platform, &options, &report);
	if (error && report.findings)
		fprintf(stderr, "bench: finding of kind %d at byte %llu of the region\n",
			(int)report.finding[0].kind, (unsigned long long)report.finding[0].offset);
	return error ? failed("open", error) : 0;
}

static int change(struct nvjournal *n, struct worker *w, const struct operation *o, bool whole)
{
	uint32_t credits = whole ? o->count * NVJ_BLOCK_CREDITS : o->count + o->lines;
	struct nvj_handle handle;
	int error = nvj_start(n->journal, &handle, credits);

	if (error)
		return failed("start a handle", error);
	for (uint32_t k = 0; k < o->count; k++) {
		const struct update *u = &o->updates[k];
		uint64_t block = w->first_block + u->block;
		uint8_t *image = w->images + (size_t)u->index * NVJ_BLOCK_BYTES;

		error = nvj_access(&handle, block, image);
		if (error)
			return failed("take a block", error);
		worker_change(w, u);
		error = nvj_log(&handle, block, image, whole ? NVJ_ALL_LINES : u->mask);
		if (error < 0)
			return failed("log", error);
	}
	w->tid = nvj_stop(&handle);
	return 0;
}

static int apply(struct nvjournal *n, struct worker *w, const struct operation *o, bool whole)
{
	int error;

	lock(n);
	error = change(n, w, o, whole);
	unlock(n);
	return error;
}

int nvjournal_apply(struct engine *e, struct worker *w, const struct operation *o)
{
	return apply(e->state, w, o, false);
}

int nvjournal_apply_blocks(struct engine *e, struct worker *w, const struct operation *o)
{
	return apply(e->state, w, o, true);
}

int nvjournal_commit(struct engine *e, struct worker *w)
{
	struct nvjournal *n = e->state;
	int error;

	lock(n);
	error = nvj_commit(n->journal, w->tid);
	unlock(n);
	return error ? failed("commit", error) : 0;
}

void nvjournal_close(struct engine *e)
{
	struct nvjournal *n = e->state;
	struct nvj_statistics statistics;

	if (!n)
		return;
	if (n->journal) {
		nvj_statistics(n->journal, &statistics);
		if (statistics.checkpoints || statistics.start_waits)
			fprintf(stderr,
				"bench: nvjournal, %u partitions: %llu checkpoints, and %llu "
				"handles waited at their start, while updates were measured; if "
				"they waited for room, use a greater --region\n",
				e->partitions, (unsigned long long)statistics.checkpoints,
				(unsigned long long)statistics.start_waits);
		nvj_abandon(n->journal);
	}
	nvju_disk_close(n->disk);
	pthread_mutex_destroy(&n->lock);
	free(n);
	e->state = NULL;
}
