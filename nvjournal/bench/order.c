/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order a checkpoint writes blocks that were changed in any order: the
 * order of the changes, and that of the writes of one round, for one partition
 * and for eight. What a disk with an arm makes of it is computed by the reader
 * (package disksim's model): nothing takes time here.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS 1024u
/* 4 GiB, of which a thousandth is changed. */
#define DISK_BLOCKS (UINT64_C(1) << 20)

static struct {
	int (*start)(void *context, unsigned queue, struct nvj_write *write);
	uint64_t block[BLOCKS];
	unsigned count;
} writes;

static int start_write(void *context, unsigned queue, struct nvj_write *write)
{
	if (writes.count < BLOCKS)
		writes.block[writes.count] = write->block;
	writes.count++;
	return writes.start(context, queue, write);
}

static void print(struct bench *b, const char *key, const uint64_t *block)
{
	json_open(b, key, '[');
	for (unsigned n = 0; n < BLOCKS; n++)
		json_number(b, NULL, (double)block[n]);
	json_close(b, ']');
}

static void one(struct bench *b, unsigned partitions, const uint64_t *changed)
{
	struct journal_options options = {
		.partitions = partitions, .checkpoint_percent = 90, .disk_blocks = DISK_BLOCKS};
	uint8_t *image = must_allocate(NVJ_BLOCK_BYTES);
	struct test_journal t;

	journal_begin(b, &t, &options);
	/* The journal has its own copy of the platform: it is opened again with ours. */
	nvj_abandon(t.journal);
	writes.start = t.platform.platform.start_write;
	writes.count = 0;
	t.platform.platform.start_write = start_write;
	must(nvj_open(&t.journal, &t.region, &t.platform.platform, NULL, NULL), "open the journal");
	for (unsigned n = 0; n < BLOCKS; n++) {
		struct nvj_handle handle;

		must(nvj_start(t.journal, &handle, 2), "start a handle");
		memset(image, 0, NVJ_BLOCK_BYTES);
		must(nvj_access(&handle, changed[n], image), "take a block");
		image[0] = 1;
		if (nvj_log(&handle, changed[n], image, 1) < 0)
			must(-1, "log");
		nvj_stop(&handle);
	}
	must(nvj_commit(t.journal, 0), "commit");
	must(nvj_checkpoint(t.journal), "checkpoint");
	if (writes.count != BLOCKS)
		must(1, "carry each block home once");
	journal_end(&t);
	free(image);
	json_open(b, NULL, '{');
	json_number(b, "partitions", partitions);
	json_number(b, "disk_blocks", (double)DISK_BLOCKS);
	print(b, "changed", changed);
	print(b, "written", writes.block);
	json_close(b, '}');
}

void measure_order(struct bench *b)
{
	static uint64_t changed[BLOCKS];

	/* Multiples of the golden ratio, mod 1: spread evenly, none twice, in no order. */
	for (unsigned n = 0; n < BLOCKS; n++)
		changed[n] = (n + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 44;
	json_open(b, "order", '[');
	one(b, 1, changed);
	one(b, 8, changed);
	json_close(b, ']');
}
