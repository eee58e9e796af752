/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same streams on memory that is slower than DRAM (nvju_dram): a fence waits
 * for so many nanoseconds more, as for the last line on its way; or all threads
 * together have so many bytes a second. Papers 3 and 4 take DRAM as it is.
 *
 * Each memory is a region of its own, touched before; engines alternate within
 * each round.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define REGION_BYTES (UINT64_C(2) << 30)
#define QUICK_REGION_BYTES (UINT64_C(256) << 20)
/* The write bandwidth of one Optane DIMM is 2.3 GB/s (arXiv 1903.05714, cited by paper 3). */
#define NARROW_BYTES_PER_SECOND UINT64_C(2300000000)
#define NARROW_FENCE_NS 300u
#define MOST_ROUNDS 3u

static const unsigned thread_counts[] = {1, 2};
#define THREAD_COUNTS 2u
#define MAX_ENGINES 16u

static const char *const compared[] = {"nvjournal", "nvjournal-cpu", "nvjournal-blocks", "one-lock",
				       "one-lock-one-fence"};
#define COMPARED 5u

static bool is_compared(const struct bench *b, const struct engine *e)
{
	for (unsigned n = 0; n < COMPARED; n++)
		if (!strcmp(e->name, compared[n]))
			return !b->engine || !strcmp(b->engine, e->name);
	return false;
}

static void print(struct bench *b, const struct nvju_dram *model, const struct stream *s,
		  const struct engine *e, unsigned threads, const struct rounds *rounds)
{
	json_open(b, NULL, '{');
	json_number(b, "fence_ns", (double)model->fence_ns);
	json_number(b, "bytes_per_second", (double)model->bytes_per_second);
	json_text(b, "stream", s->name);
	json_text(b, "engine", e->name);
	json_number(b, "partitions", e->partitions);
	json_number(b, "threads", threads);
	json_rounds(b, rounds, "updates_per_second", NULL);
	json_close(b, '}');
}

static void measure_stream(struct bench *b, struct bench *slow, const struct nvju_dram *model,
			   const struct stream *s)
{
	static struct rounds all[THREAD_COUNTS][MAX_ENGINES];
	unsigned rounds = b->rounds < MOST_ROUNDS ? b->rounds : MOST_ROUNDS;
	uint8_t *images = must_allocate((size_t)s->blocks * NVJ_BLOCK_BYTES *
					thread_counts[THREAD_COUNTS - 1]);

	memset(all, 0, sizeof(all));
	for (unsigned round = 0; round <= rounds; round++)
		for (unsigned t = 0; t < THREAD_COUNTS; t++)
			for (unsigned n = 0; engines[n].name; n++) {
				struct rounds *of = &all[t][n];
				struct way way;
				double rate;

				if (!is_compared(b, &engines[n]))
					continue;
				way.before_ns = distance_ns(b, thread_counts[t]);
				rate = updates_per_second(slow, &engines[n], s, thread_counts[t],
							  images);
				way.after_ns = distance_ns(b, thread_counts[t]);
				if (!round)
					continue; /* it warms up */
				of->number[of->count] = round;
				of->value[of->count] = rate;
				of->way[of->count++] = way;
			}
	for (unsigned n = 0; engines[n].name; n++)
		for (unsigned t = 0; t < THREAD_COUNTS && is_compared(b, &engines[n]); t++)
			print(b, model, s, &engines[n], thread_counts[t], &all[t][n]);
	free(images);
}

static void measure_memory(struct bench *b, const struct nvju_dram *model)
{
	struct bench slow = *b;
	uint64_t bytes = b->quick ? QUICK_REGION_BYTES : REGION_BYTES;

	fprintf(stderr, "bench: fences of %llu ns, %llu bytes/s\n",
		(unsigned long long)model->fence_ns, (unsigned long long)model->bytes_per_second);
	must(nvju_region_dram(&slow.memory, bytes, model), "make slower memory");
	slow.region = nvju_region(slow.memory);
	memset(slow.region->base, 0, slow.region->size_bytes);
	for (unsigned n = 0; n < b->stream_count; n++)
		measure_stream(b, &slow, model, &b->streams[n]);
	nvju_region_close(slow.memory);
}

void measure_latency(struct bench *b)
{
	json_open(b, "latency", '[');
	for (unsigned n = 0; n < b->latency_count; n++) {
		struct nvju_dram model = {.fence_ns = b->latency_ns[n]};

		measure_memory(b, &model);
	}
	if (b->latency_count) {
		struct nvju_dram model = {.fence_ns = NARROW_FENCE_NS,
					  .bytes_per_second = NARROW_BYTES_PER_SECOND};

		measure_memory(b, &model);
	}
	json_close(b, ']');
}
