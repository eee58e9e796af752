/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What more rings cost: the memory of an open journal, the part of the region that
 * has no records, and recovery of the same records, which are in all rings in turn.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define COMMIT_EACH 100u
/* The part of the commit ring's slots that may be used. */
#define USED_SLOTS 0.45

static const unsigned partitions[] = {1, 8, 16, 64};
#define SUBJECTS 4u
static const uint64_t sizes[] = {UINT64_C(64) << 20, UINT64_C(512) << 20};
#define SIZES 2u

struct subject {
	struct nvj_disk_super super;
	uint64_t open_bytes, full_bytes; /* of memory */
	uint64_t read_bytes, recovery_bytes;
	struct nvj_report report;
	double in_turn[MAX_ROUNDS], in_parallel[MAX_ROUNDS], elapsed[MAX_ROUNDS];
};

/* --- A platform that counts memory; its processors take turns -------------- */

static struct {
	struct nvj_platform under;
	uint64_t now, most; /* bytes */
	unsigned processor;
} counted;

static void *count_allocate(void *context, size_t bytes)
{
	void *memory = counted.under.allocate(context, bytes);

	if (memory)
		counted.now += bytes;
	if (counted.now > counted.most)
		counted.most = counted.now;
	return memory;
}

static void count_release(void *context, void *memory, size_t bytes)
{
	counted.now -= bytes;
	counted.under.release(context, memory, bytes);
}

static unsigned next_processor(void *context)
{
	(void)context;
	return counted.processor++;
}

static void count_with(struct nvj_platform *platform)
{
	counted.under = *platform;
	counted.now = counted.most = counted.processor = 0;
	platform->allocate = count_allocate;
	platform->release = count_release;
	platform->allocate_block = NULL; /* then allocate makes them */
	platform->cpu = next_processor;
	platform->add_here = NULL; /* the thread is not on that processor */
}

static uint64_t read_bytes;

static int count_read(void *to, const void *from, size_t bytes)
{
	read_bytes += bytes;
	memcpy(to, from, bytes);
	return 0;
}

/* --- Recovery --------------------------------------------------------------- */

static double processor_seconds(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* Recovers a copy of the region; returns the processors' seconds. */
static double recover(struct bench *b, struct subject *s, const void *kept, uint64_t size,
		      bool counts, nvj_run *run, double *elapsed)
{
	struct nvj_region region = *b->region;
	struct nvju_platform platform;
	struct nvju_disk *disk;
	double before, seconds;
	uint64_t began;

	region.size_bytes = size;
	memcpy(region.base, kept, size);
	must(nvju_disk_memory(&disk, FILL_BLOCKS, NULL), "make a disk");
	nvju_platform_init(&platform, disk);
	if (counts) {
		count_with(&platform.platform);
		read_bytes = 0;
		region.read = count_read;
	}
	began = now_ns();
	before = processor_seconds();
	must(nvj_recover_with(&region, &platform.platform, run, &s->report), "recover");
	seconds = processor_seconds() - before;
	*elapsed = (double)(now_ns() - began) / 1e9;
	nvju_disk_close(disk);
	return seconds;
}

/* Fills a journal with so many operations; 0: until it is full. Returns their number. */
static uint64_t measure(struct bench *b, struct subject *s, unsigned rings, uint64_t size,
			uint8_t *images, uint64_t operations)
{
	struct journal_options options = {
		.partitions = rings,
		.placement = NVJ_PLACE_CPU,
		.checkpoint_percent = 100,
		.disk_blocks = FILL_BLOCKS,
		.region_bytes = size,
		.usual_commits = true,
		.change = count_with,
	};
	struct test_journal t;
	void *kept = must_allocate(size);
	double unused;

	journal_begin(b, &t, &options);
	must(nvj_read_super(&t.region, &s->super), "read the superblock");
	s->open_bytes = counted.now;
	operations = fill_journal(&t, &b->streams[0], images, COMMIT_EACH,
				  (uint64_t)(USED_SLOTS * s->super.commits), operations);
	s->full_bytes = counted.now;
	journal_end(&t);
	memcpy(kept, b->region->base, size);

	(void)recover(b, s, kept, size, true, NULL, &unused);
	s->read_bytes = read_bytes;
	s->recovery_bytes = counted.most;
	for (unsigned round = 0; round < b->rounds; round++) {
		s->in_turn[round] = recover(b, s, kept, size, false, NULL, &unused);
		s->in_parallel[round] =
			recover(b, s, kept, size, false, nvju_run, &s->elapsed[round]);
	}
	free(kept);
	return operations;
}

static void print(struct bench *b, struct subject *s)
{
	uint64_t lines = (uint64_t)s->super.commits * s->super.commit_lines;

	json_open(b, NULL, '{');
	json_number(b, "partitions", s->super.partitions);
	json_number(b, "region_bytes", (double)s->super.size_bytes);
	json_number(b, "ring_bytes", (double)s->super.ring_lines * NVJ_LINE_BYTES);
	json_number(b, "commit_ring_bytes", (double)lines * NVJ_LINE_BYTES);
	json_number(b, "commits", s->super.commits);
	json_number(b, "open_bytes", (double)s->open_bytes);
	json_number(b, "full_bytes", (double)s->full_bytes);
	json_number(b, "records", (double)s->report.records);
	json_number(b, "blocks", (double)s->report.blocks);
	json_number(b, "journal_bytes", (double)s->report.journal_bytes);
	json_number(b, "read_bytes", (double)s->read_bytes);
	json_number(b, "recovery_bytes", (double)s->recovery_bytes);
	json_spread(b, "processor_seconds_in_turn", spread_of(s->in_turn, b->rounds));
	json_spread(b, "processor_seconds_in_parallel", spread_of(s->in_parallel, b->rounds));
	json_spread(b, "elapsed_seconds_in_parallel", spread_of(s->elapsed, b->rounds));
	json_close(b, '}');
}

void measure_rings(struct bench *b)
{
	static struct subject subjects[SUBJECTS];
	uint8_t *images =
		must_allocate((size_t)b->streams[0].blocks * NVJ_BLOCK_BYTES * FILL_THREADS);

	json_open(b, "rings", '[');
	for (unsigned n = 0; n < SIZES; n++) {
		uint64_t operations = 0;

		if (sizes[n] > b->region->size_bytes || (n && b->quick))
			break;
		/* The most rings are full first. */
		for (unsigned k = SUBJECTS; k-- > 0;)
			operations = measure(b, &subjects[k], partitions[k], sizes[n], images,
					     operations);
		for (unsigned k = 0; k < SUBJECTS; k++)
			print(b, &subjects[k]);
	}
	json_close(b, ']');
	free(images);
}
