/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seconds that recovery takes for a GiB of journal: one partition against eight,
 * these in turn and in parallel. The journal holds the first stream, committed
 * each ten operations, of sixteen threads' blocks; the disk takes no time.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define REGION_BYTES (UINT64_C(512) << 20)
#define QUICK_REGION_BYTES (UINT64_C(64) << 20)
#define COMMIT_EACH 10u
/* Of the fullest ring: before handles have to wait. */
#define FULL 0.45

static const struct {
	unsigned partitions;
	bool parallel;
} subjects[] = {{1, false}, {8, false}, {8, true}};
#define SUBJECTS 3u

uint64_t fill_journal(struct test_journal *t, const struct stream *s, uint8_t *images,
		      unsigned commit_each, uint64_t most_commits, uint64_t operations)
{
	size_t bytes = (size_t)s->blocks * NVJ_BLOCK_BYTES;
	struct engine plain = {.name = "fill"};
	struct nvj_statistics statistics;
	uint64_t n = 0;

	memset(images, 0, bytes * FILL_THREADS);
	for (;;) {
		const struct operation *o =
			&s->operations[s->initial + n / FILL_THREADS % s->count];
		struct worker w = {.engine = &plain,
				   .first_block = n % FILL_THREADS * THREAD_STRIDE,
				   .images = images + n % FILL_THREADS * bytes};
		struct nvj_handle handle;

		must(nvj_start(t->journal, &handle, o->count + o->lines), "start a handle");
		for (uint32_t k = 0; k < o->count; k++) {
			uint64_t block = w.first_block + o->updates[k].block;
			uint8_t *image = w.images + (size_t)o->updates[k].index * NVJ_BLOCK_BYTES;

			must(nvj_access(&handle, block, image), "take a block");
			worker_change(&w, &o->updates[k]);
			if (nvj_log(&handle, block, image, o->updates[k].mask) < 0)
				must(-1, "log");
		}
		nvj_stop(&handle);
		if (++n % commit_each)
			continue;
		must(nvj_commit(t->journal, 0), "commit");
		nvj_statistics(t->journal, &statistics);
		if (operations ? n == operations
			       : statistics.used_lines > FULL * (double)statistics.ring_lines ||
					 statistics.transactions >= most_commits)
			break;
	}
	if (statistics.checkpoints)
		must(1, "fill the journal without a checkpoint");
	return n;
}

void measure_recovery(struct bench *b)
{
	static double seconds[SUBJECTS][MAX_ROUNDS];
	static uint64_t read[SUBJECTS], records[SUBJECTS], blocks[SUBJECTS];
	uint64_t size = b->quick ? QUICK_REGION_BYTES : REGION_BYTES;
	const struct stream *s = &b->streams[0];
	uint8_t *images = must_allocate((size_t)s->blocks * NVJ_BLOCK_BYTES * FILL_THREADS);
	void *kept[SUBJECTS];

	if (size > b->region->size_bytes)
		size = b->region->size_bytes;
	for (unsigned n = 0; n < SUBJECTS; n++) {
		struct journal_options options = {
			.partitions = subjects[n].partitions,
			.checkpoint_percent = 100,
			.disk_blocks = FILL_BLOCKS,
			.region_bytes = size,
		};
		struct test_journal t;

		journal_begin(b, &t, &options);
		fill_journal(&t, s, images, COMMIT_EACH, (uint64_t)(FULL * NVJ_MAX_COMMITS), 0);
		journal_end(&t);
		kept[n] = must_allocate(size);
		memcpy(kept[n], b->region->base, size);
	}
	for (unsigned round = 0; round <= b->rounds; round++)
		for (unsigned n = 0; n < SUBJECTS; n++) {
			struct nvj_region region = *b->region;
			struct nvju_platform platform;
			struct nvj_report report;
			struct nvju_disk *disk;
			uint64_t began;

			region.size_bytes = size;
			memcpy(region.base, kept[n], size);
			must(nvju_disk_memory(&disk, FILL_BLOCKS, NULL), "make a disk");
			nvju_platform_init(&platform, disk);
			began = now_ns();
			must(nvj_recover_with(&region, &platform.platform,
					      subjects[n].parallel ? nvju_run : NULL, &report),
			     "recover");
			seconds[n][round ? round - 1 : 0] = (double)(now_ns() - began) / 1e9 *
							    (1 << 30) /
							    (double)report.journal_bytes;
			read[n] = report.journal_bytes;
			records[n] = report.records;
			blocks[n] = report.blocks;
			nvju_disk_close(disk);
		}
	json_open(b, "recovery", '[');
	for (unsigned n = 0; n < SUBJECTS; n++) {
		json_open(b, NULL, '{');
		json_number(b, "partitions", subjects[n].partitions);
		json_text(b, "how", subjects[n].parallel ? "in parallel" : "in turn");
		json_spread(b, "seconds_per_gib", spread_of(seconds[n], b->rounds));
		json_number(b, "journal_bytes", (double)read[n]);
		json_number(b, "records", (double)records[n]);
		json_number(b, "blocks", (double)blocks[n]);
		json_close(b, '}');
		free(kept[n]);
	}
	json_close(b, ']');
	free(images);
}
