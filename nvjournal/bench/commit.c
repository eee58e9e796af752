/* SPDX-License-Identifier: Apache-2.0 */
/* How long nvj_commit takes for one thread, behind one update of 256 bytes. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define COMMITS 20000u
#define QUICK_COMMITS 4000u
#define BLOCKS 64u

struct round {
	double median, p99, mean;
};

static struct round measure(struct bench *b, unsigned partitions, uint8_t *images, double *us)
{
	struct journal_options options = {
		.partitions = partitions, .checkpoint_percent = 90, .disk_blocks = BLOCKS};
	unsigned commits = b->quick ? QUICK_COMMITS : COMMITS;
	struct test_journal t;
	struct round r = {0};

	journal_begin(b, &t, &options);
	for (unsigned n = 0; n < commits; n++) {
		uint8_t *image = images + (size_t)(n % BLOCKS) * NVJ_BLOCK_BYTES;
		struct nvj_handle handle;
		uint64_t tid, began, value = n + 1;

		must(nvj_start(t.journal, &handle, 5), "start a handle");
		must(nvj_access(&handle, n % BLOCKS, image), "take a block");
		for (unsigned k = 0; k < 4; k++)
			memcpy(image + (size_t)k * NVJ_LINE_BYTES, &value, sizeof(value));
		if (nvj_log(&handle, n % BLOCKS, image, 15) < 0)
			must(-1, "log");
		tid = nvj_stop(&handle);
		/* What reading the clock takes is in it. */
		began = now_ns();
		must(nvj_commit(t.journal, tid), "commit");
		us[n] = (double)(now_ns() - began) / 1e3;
		r.mean += us[n] / commits;
	}
	journal_end(&t);
	r.median = percentile(us, commits, 0.5);
	r.p99 = percentile(us, commits, 0.99);
	return r;
}

void measure_commit(struct bench *b)
{
	unsigned rounds = short_rounds(b);
	static const unsigned partitions[] = {1, 8};
	static double median[2][MAX_ROUNDS], p99[2][MAX_ROUNDS], mean[2][MAX_ROUNDS];
	uint8_t *images = must_allocate((size_t)BLOCKS * NVJ_BLOCK_BYTES);
	double *us = must_allocate(COMMITS * sizeof(*us));

	for (unsigned round = 0; round <= rounds; round++)
		for (unsigned n = 0; n < 2; n++) {
			struct round r = measure(b, partitions[n], images, us);
			unsigned at = round ? round - 1 : 0;

			median[n][at] = r.median;
			p99[n][at] = r.p99;
			mean[n][at] = r.mean;
		}
	json_open(b, "commit", '[');
	for (unsigned n = 0; n < 2; n++) {
		json_open(b, NULL, '{');
		json_number(b, "partitions", partitions[n]);
		json_spread(b, "median_us", spread_of(median[n], rounds));
		json_spread(b, "mean_us", spread_of(mean[n], rounds));
		json_spread(b, "p99_us", spread_of(p99[n], rounds));
		json_close(b, '}');
	}
	json_close(b, ']');
	free(images);
	free(us);
}
