/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small synchronous writes of file data: through the journal (nvj_log_data and a
 * commit) against pwrite and fdatasync, on a file in memory and on a disk's file.
 * The files are written before, so that nothing is allocated.
 */
#include "bench.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS 1024u
#define WRITES 4000u
#define DISK_WRITES 100u

static const unsigned sizes[] = {512, 4096};

static unsigned place(unsigned n)
{
	return n * 2654435761u % BLOCKS;
}

/* Median microseconds of one write. */
static double through_journal(struct bench *b, unsigned bytes, double *us)
{
	struct journal_options options = {
		.partitions = 1, .checkpoint_percent = 90, .disk_blocks = BLOCKS};
	uint64_t lines = bytes / NVJ_LINE_BYTES;
	uint64_t mask = lines == NVJ_BLOCK_LINES ? NVJ_ALL_LINES : (UINT64_C(1) << lines) - 1;
	unsigned writes = b->quick ? WRITES / 8 : WRITES;
	uint8_t *images = must_allocate((size_t)BLOCKS * NVJ_BLOCK_BYTES);
	struct test_journal t;

	journal_begin(b, &t, &options);
	for (unsigned n = 0; n < writes; n++) {
		uint64_t block = place(n), began = now_ns();
		uint8_t *image = images + block * NVJ_BLOCK_BYTES;
		struct nvj_handle handle;

		must(nvj_start(t.journal, &handle, 1 + (uint32_t)lines), "start a handle");
		must(nvj_access(&handle, block, image), "take a block");
		memset(image, (int)(n | 1), bytes);
		if (nvj_log_data(&handle, block, image, mask) < 0)
			must(-1, "log data");
		must(nvj_commit(t.journal, nvj_stop(&handle)), "commit");
		us[n] = (double)(now_ns() - began) / 1e3;
	}
	journal_end(&t);
	free(images);
	return percentile(us, writes, 0.5);
}

static double through_file(struct bench *b, const char *directory, unsigned bytes, unsigned writes,
			   double *us)
{
	uint8_t *data = must_allocate(NVJ_BLOCK_BYTES);
	char path[256];
	int file;

	snprintf(path, sizeof(path), "%s/nvj-bench-data-XXXXXX", directory);
	file = mkstemp(path);
	if (file < 0)
		must(1, "make a file to write data to");
	unlink(path);
	for (unsigned n = 0; n < BLOCKS; n++)
		if (pwrite(file, data, NVJ_BLOCK_BYTES, n * (off_t)NVJ_BLOCK_BYTES) !=
		    NVJ_BLOCK_BYTES)
			must(1, "fill a file");
	must(fsync(file) ? 1 : 0, "sync a file");
	writes = b->quick ? writes / 4 : writes;
	for (unsigned n = 0; n < writes; n++) {
		uint64_t began = now_ns();

		memset(data, (int)(n | 1), bytes);
		if (pwrite(file, data, bytes, place(n) * (off_t)NVJ_BLOCK_BYTES) !=
			    (ssize_t)bytes ||
		    fdatasync(file))
			must(1, "write data");
		us[n] = (double)(now_ns() - began) / 1e3;
	}
	close(file);
	free(data);
	return percentile(us, writes, 0.5);
}

void measure_data(struct bench *b)
{
	unsigned rounds = short_rounds(b);
	static double all[2][3][MAX_ROUNDS];
	static const char *const names[] = {"nvj_log_data, nvj_commit",
					    "pwrite, fdatasync: file in memory",
					    "pwrite, fdatasync: file on a disk"};
	double *us = must_allocate(WRITES * sizeof(*us));

	for (unsigned round = 0; round <= rounds; round++)
		for (unsigned n = 0; n < 2; n++) {
			unsigned at = round ? round - 1 : 0;

			all[n][0][at] = through_journal(b, sizes[n], us);
			all[n][1][at] = through_file(b, b->directory, sizes[n], WRITES, us);
			all[n][2][at] = through_file(b, b->disk, sizes[n], DISK_WRITES, us);
		}
	json_open(b, "data", '[');
	for (unsigned n = 0; n < 2; n++)
		for (unsigned k = 0; k < 3; k++) {
			json_open(b, NULL, '{');
			json_text(b, "how", names[k]);
			json_number(b, "bytes", sizes[n]);
			json_spread(b, "median_us", spread_of(all[n][k], rounds));
			json_close(b, '}');
		}
	json_close(b, ']');
	free(us);
}
