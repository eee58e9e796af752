/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"
#include "oracle.h"
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct making {
	struct sample *sample;
	struct world world;
	unsigned kind;
};

static const struct {
	uint32_t partitions, transactions;
	bool checkpoint, uncommitted, revoke;
} kinds[SAMPLE_KINDS] = {
	{1, 3, false, false, false}, /* a few */
	{1, 12, false, true, true},  /* many, and one that was under way */
	{1, 40, true, true, true},   /* both rings have gone round */
	{2, 9, true, true, true},    {8, 6, false, true, true},
};

static void check(int r, const char *what)
{
	if (r >= 0)
		return;
	fprintf(stderr, "sample: %s: %s\n", what, nvj_strerror(r));
	abort();
}

static uint64_t one_handle(struct nvj *j, struct random *random, uint8_t *cache, bool revoke)
{
	struct nvj_handle handle;
	uint32_t count = 1 + random_below(random, 3);

	check(nvj_start(j, &handle, count * 24), "nvj_start");
	for (uint32_t i = 0; i < count; i++) {
		uint32_t block = random_below(random, SAMPLE_BLOCKS);
		uint8_t *image = cache + (size_t)block * NVJ_BLOCK_BYTES;

		if (revoke && random_once_in(random, 6)) {
			check(nvj_revoke(&handle, block), "nvj_revoke");
			check(nvj_create(&handle, block), "nvj_create");
			memset(image, 0, NVJ_BLOCK_BYTES);
		} else {
			check(nvj_access(&handle, block, image), "nvj_access");
		}
		for (uint32_t k = 0; k <= random_below(random, 10); k++)
			oracle_fill(image + 64 * random_below(random, 64),
				    random_below(random, 1000));
		check(nvj_log(&handle, block, image, NVJ_COMPARE), "nvj_log");
	}
	return nvj_stop(&handle);
}

static void make(void *argument)
{
	struct making *m = argument;
	struct nvj_format_options format = {.partitions = kinds[m->kind].partitions,
					    .commits = 16,
					    .placement =
						    m->kind % 2 ? NVJ_PLACE_CPU : NVJ_PLACE_BLOCK,
					    .uuid = {7}};
	struct nvj_options options = {.checkpoint_percent = 100};
	struct random random = random_from(m->kind);
	uint8_t *cache = malloc((size_t)SAMPLE_BLOCKS * NVJ_BLOCK_BYTES);
	struct nvj_report report;
	struct nvj *j;

	memcpy(cache, m->sample->disk, (size_t)SAMPLE_BLOCKS * NVJ_BLOCK_BYTES);
	check(nvj_format(&m->world.nvj_region, &format), "nvj_format");
	check(nvj_open(&j, &m->world.nvj_region, &m->world.platform, &options, &report),
	      "nvj_open");
	for (uint32_t i = 0; i < kinds[m->kind].transactions; i++) {
		check(nvj_commit(j, one_handle(j, &random, cache, kinds[m->kind].revoke)),
		      "nvj_commit");
		if (kinds[m->kind].checkpoint && i + 6 == kinds[m->kind].transactions)
			check(nvj_checkpoint(j), "nvj_checkpoint");
	}
	if (kinds[m->kind].uncommitted)
		one_handle(j, &random, cache, false);
	nvj_abandon(j);
	free(cache);
}

void sample_make(struct sample *s, unsigned kind)
{
	struct making m = {.sample = s, .kind = kind};
	struct schedule *schedule = schedule_new(kind, 10000000);
	uint32_t partitions = kinds[kind].partitions;
	size_t disk_bytes = (size_t)SAMPLE_BLOCKS * NVJ_BLOCK_BYTES;
	uint8_t *before;

	s->region_bytes = (NVJ_COMMITS_OFFSET + 16 * nvj_commit_lines(partitions) * 64 +
			   (size_t)partitions * 1024 * 64 + 4095) /
			  4096 * 4096;
	s->region = aligned_alloc(4096, s->region_bytes);
	s->disk = aligned_alloc(4096, disk_bytes);
	s->recovered = aligned_alloc(4096, disk_bytes);
	before = malloc(s->region_bytes);
	if (!s->region || !s->disk || !s->recovered || !before)
		abort();
	memset(s->region, 0, s->region_bytes);
	for (size_t i = 0; i < disk_bytes / 64; i++)
		oracle_fill(s->disk + 64 * i, 0x50000000u + (uint32_t)i);
	world_begin(&m.world, s->region, s->region_bytes, s->disk, SAMPLE_BLOCKS, kind);
	schedule_spawn(schedule, "maker", make, &m);
	if (schedule_run(schedule) != SCHEDULE_DONE) {
		schedule_print(schedule);
		abort();
	}
	schedule_free(schedule);
	world_end(&m.world);

	/* What is right: recovery of a copy. */
	memcpy(before, s->region, s->region_bytes);
	memcpy(s->recovered, s->disk, disk_bytes);
	world_begin(&m.world, s->region, s->region_bytes, s->recovered, SAMPLE_BLOCKS, kind);
	check(nvj_recover(&m.world.nvj_region, &m.world.platform, &s->report), "nvj_recover");
	world_end(&m.world);
	memcpy(s->region, before, s->region_bytes);
	free(before);
}

void sample_free(struct sample *s)
{
	free(s->region);
	free(s->disk);
	free(s->recovered);
}
