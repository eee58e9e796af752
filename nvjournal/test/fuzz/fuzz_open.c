/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: nvj_open on arbitrary regions, and if it opens, some work, a commit
 * and another open, which must find that work.
 */
#include "edits.h"
#include "lib/schedule.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

static void work(struct edited *e, struct nvj *j)
{
	static _Alignas(64) uint8_t image[NVJ_BLOCK_BYTES];
	struct nvj_handle handle;
	struct nvj_options options = {0};
	struct nvj_report report;
	int r;

	for (unsigned i = 0; i < 20; i++) {
		r = nvj_start(j, &handle, 10);
		if (r < 0)
			break;
		memset(image, 0, sizeof(image));
		if (nvj_create(&handle, i % FUZZ_BLOCKS) < 0)
			abort();
		image[64 * i] = (uint8_t)(i + 1);
		if (nvj_log(&handle, i % FUZZ_BLOCKS, image, NVJ_COMPARE) < 0)
			abort();
		r = nvj_commit(j, nvj_stop(&handle));
		if (r < 0)
			break;
	}
	nvj_abandon(j);
	if (r < 0)
		return;
	r = nvj_open(&j, &e->world.nvj_region, &e->world.platform, &options, &report);
	if (r < 0 && e->forged)
		return;
	if (r < 0 || report.findings != 0)
		abort();
	/* The last one, of block 19 mod 12. */
	memset(image, 0, sizeof(image));
	image[64 * 19] = 20;
	if (memcmp(e->disk + 7 * (size_t)NVJ_BLOCK_BYTES, image, sizeof(image)) != 0)
		abort();
	if (nvj_close(j) < 0)
		abort();
}

static void open_it(void *argument)
{
	struct edited *e = argument;
	struct nvj_options options = {0};
	struct nvj_report report;
	struct nvj *j;
	int r;

	memset(&report, 0, sizeof(report));
	r = nvj_open(&j, &e->world.nvj_region, &e->world.platform, &options, &report);
	if (r == NVJ_EUCLEAN && (report.findings == 0 || e->world.trace.count != 0))
		abort();
	if (r == 0)
		work(e, j);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
	struct schedule *schedule;
	struct edited e;

	if (!edits_begin(&e, input, bytes))
		return 0;
	schedule = schedule_new(1, 10000000);
	schedule_spawn(schedule, "opener", open_it, &e);
	if (schedule_run(schedule) != SCHEDULE_DONE) {
		schedule_print(schedule);
		abort();
	}
	schedule_free(schedule);
	edits_end(&e);
	return 0;
}
