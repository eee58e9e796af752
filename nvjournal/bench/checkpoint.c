/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast committed blocks go home: one thread with one write under way, as the
 * journals of both papers' baselines; one partition with one thread and up to 32
 * writes under way; eight with eight threads. The disk is a model in memory of
 * 8 or 64 channels, each of which takes a millisecond for a block, so that the
 * processors are not what is measured.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 4096u
#define QUICK_BLOCKS 1024u
#define WRITE_NS 1000000u
#define BLOCKS_OF_HANDLE 16u

static const unsigned channels[] = {8, 64};
static const unsigned threads[] = {0, 1, 8}; /* 0: one write at a time */
#define DISKS 2u
#define SUBJECTS 3u

static double one_at_a_time(const struct nvju_disk_model *model, unsigned blocks)
{
	struct nvju_disk *disk;
	void *image = must_allocate(NVJ_BLOCK_BYTES);
	uint64_t began;
	double seconds;

	/* It is the slowest: a quarter is enough. */
	blocks /= 4;
	must(nvju_disk_memory(&disk, blocks, model), "make a disk");
	began = now_ns();
	for (unsigned n = 0; n < blocks; n++) {
		struct nvj_write write = {.block = n, .image = image};

		must(nvju_disk_start_write(disk, 0, &write), "write");
		if (nvju_disk_finish_write(disk, 0)->error)
			must(-1, "write");
	}
	must(nvju_disk_flush(disk), "flush the disk");
	seconds = (double)(now_ns() - began) / 1e9;
	nvju_disk_close(disk);
	free(image);
	return (double)blocks / seconds;
}

static double checkpoint(struct bench *b, const struct nvju_disk_model *model, unsigned partitions,
			 unsigned blocks)
{
	struct journal_options options = {
		.partitions = partitions,
		.checkpoint_percent = 90,
		.workers = true,
		.disk = model,
		.disk_blocks = blocks,
	};
	uint8_t *image = must_allocate(NVJ_BLOCK_BYTES);
	struct nvju_workers *workers;
	struct test_journal t;
	uint64_t began;
	double seconds;

	journal_begin(b, &t, &options);
	for (unsigned n = 0; n < blocks; n += BLOCKS_OF_HANDLE) {
		struct nvj_handle handle;

		must(nvj_start(t.journal, &handle, 2 * BLOCKS_OF_HANDLE), "start a handle");
		for (unsigned k = 0; k < BLOCKS_OF_HANDLE; k++) {
			memset(image, 0, NVJ_BLOCK_BYTES);
			must(nvj_access(&handle, n + k, image), "take a block");
			image[0] = 1;
			if (nvj_log(&handle, n + k, image, 1) < 0)
				must(-1, "log");
		}
		nvj_stop(&handle);
	}
	must(nvj_commit(t.journal, 0), "commit");
	must(nvju_workers_start(&workers, t.journal, NVJU_CHECKPOINT_WORKERS), "start threads");
	began = now_ns();
	must(nvj_checkpoint(t.journal), "checkpoint");
	seconds = (double)(now_ns() - began) / 1e9;
	if (nvju_disk_counts(t.disk).writes < blocks)
		must(1, "carry all blocks home");
	nvj_stop_workers(t.journal);
	nvju_workers_stop(workers);
	journal_end(&t);
	free(image);
	return (double)blocks / seconds;
}

void measure_checkpoint(struct bench *b)
{
	static double rate[DISKS][SUBJECTS][MAX_ROUNDS];
	unsigned blocks = b->quick ? QUICK_BLOCKS : BLOCKS;

	for (unsigned round = 0; round < b->rounds; round++)
		for (unsigned d = 0; d < DISKS; d++)
			for (unsigned n = 0; n < SUBJECTS; n++) {
				struct nvju_disk_model model = {.channels = channels[d],
								.write_ns = WRITE_NS};
				double each = threads[n] ? checkpoint(b, &model, threads[n], blocks)
							 : one_at_a_time(&model, blocks);

				rate[d][n][round] = each * NVJ_BLOCK_BYTES / (1 << 20);
			}
	json_open(b, "checkpoint", '[');
	for (unsigned d = 0; d < DISKS; d++)
		for (unsigned n = 0; n < SUBJECTS; n++) {
			json_open(b, NULL, '{');
			json_number(b, "channels", channels[d]);
			json_number(b, "threads", threads[n] ? threads[n] : 1);
			json_number(b, "writes_under_way",
				    threads[n] ? threads[n] * NVJ_QUEUE_DEPTH : 1);
			json_number(b, "write_seconds", WRITE_NS / 1e9);
			json_spread(b, "mib_per_second", spread_of(rate[d][n], b->rounds));
			json_close(b, '}');
		}
	json_close(b, ']');
}
