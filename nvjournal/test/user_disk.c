/* SPDX-License-Identifier: Apache-2.0 */
/* Disks: files by io_uring and without, and the memory disk with its faults. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvjournal_user.h"
#include "user_expect.h"

/* The memory disk is compiled here, with a calloc that fails when told. */
static bool no_memory_is_left;
static void *calloc_of_test(size_t count, size_t bytes)
{
	return no_memory_is_left ? NULL : calloc(count, bytes);
}
#define calloc calloc_of_test
#include "../user/disk_memory.c"
#undef calloc

static void fill(uint8_t *image, uint64_t block, unsigned version)
{
	for (unsigned n = 0; n < NVJ_BLOCK_BYTES; n++)
		image[n] = (uint8_t)(block * 31 + version * 7 + n / 512);
}

static bool is(struct nvju_disk *disk, uint64_t block, unsigned version)
{
	uint8_t want[NVJ_BLOCK_BYTES], have[NVJ_BLOCK_BYTES];

	fill(want, block, version);
	expect(nvju_disk_read(disk, block, have) == 0);
	return !memcmp(want, have, NVJ_BLOCK_BYTES);
}

/* Writes count blocks on each of two queues, as many at once as may be. */
static void write_many(struct nvju_disk *disk, unsigned count, unsigned version)
{
	static uint8_t memory[2 * NVJ_QUEUE_DEPTH][NVJ_BLOCK_BYTES + NVJ_LINE_BYTES];
	struct nvj_write writes[2 * NVJ_QUEUE_DEPTH], *ended;
	unsigned started[2] = {0}, done[2] = {0};

	expect(count <= NVJ_QUEUE_DEPTH);
	for (unsigned n = 0; n < 2 * count; n++) {
		/* At a multiple of 64 and, mostly, not of 4096. */
		uint8_t *image = (uint8_t *)(((uintptr_t)memory[n] + 63) & ~(uintptr_t)63);

		fill(image, n, version);
		writes[n] = (struct nvj_write){.block = n, .image = image, .error = 77};
		expect(nvju_disk_start_write(disk, n % 2, &writes[n]) == 0);
		started[n % 2]++;
	}
	for (unsigned queue = 0; queue < 2; queue++)
		while (done[queue] < started[queue]) {
			ended = nvju_disk_finish_write(disk, queue);
			expect(ended && ended >= writes && ended < writes + 2 * count);
			expect(ended->error == 0 && ended->block % 2 == queue);
			ended->error = 77; /* once only */
			done[queue]++;
		}
	expect(!nvju_disk_finish_write(disk, 0) && !nvju_disk_finish_write(disk, 1));
	expect(nvju_disk_flush(disk) == 0);
}

static void a_file_keeps_blocks(unsigned flags)
{
	struct nvju_disk_counts counts;
	struct nvju_disk *disk;
	struct stat status;
	char path[64];

	unlink(new_file(path));
	expect(nvju_disk_open(&disk, path, flags) == -ENOENT);
	expect(nvju_disk_open(&disk, path, flags | NVJU_DISK_CREATE) == 0);
	printf("%s: %s\n", path, nvju_disk_how(disk));
	expect((flags & NVJU_DISK_NO_URING) == 0 || strstr(nvju_disk_how(disk), "pwrite"));
	write_many(disk, NVJ_QUEUE_DEPTH, 1);
	write_many(disk, NVJ_QUEUE_DEPTH, 2);
	for (unsigned n = 0; n < 2 * NVJ_QUEUE_DEPTH; n++)
		expect(is(disk, n, 2));
	counts = nvju_disk_counts(disk);
	expect(counts.writes == 4 * NVJ_QUEUE_DEPTH && counts.flushes == 2 && counts.errors == 0);
	expect(counts.reads == 2 * NVJ_QUEUE_DEPTH);
	nvju_disk_close(disk);
	expect(stat(path, &status) == 0 && status.st_size == 2 * NVJ_QUEUE_DEPTH * 4096);

	/* A file that ends within a block reads as zeros from there. */
	expect(truncate(path, 5 * 4096 + 1000) == 0);
	expect(nvju_disk_open(&disk, path, flags | NVJU_DISK_READ_ONLY) == 0);
	uint8_t image[NVJ_BLOCK_BYTES], want[NVJ_BLOCK_BYTES];
	fill(want, 5, 2);
	memset(want + 1000, 0, NVJ_BLOCK_BYTES - 1000);
	expect(nvju_disk_read(disk, 5, image) == 0 && !memcmp(image, want, sizeof(want)));
	memset(want, 0, sizeof(want));
	expect(nvju_disk_read(disk, 9, image) == 0 && !memcmp(image, want, sizeof(want)));
	/* ... and cannot be written. */
	struct nvj_write write = {.block = 1, .image = image};
	if (nvju_disk_start_write(disk, 3, &write) == 0)
		expect(nvju_disk_finish_write(disk, 3) == &write && write.error == NVJ_EIO);
	expect(nvju_disk_counts(disk).errors == 1 && strstr(nvju_error(), path));
	nvju_disk_close(disk);
	unlink(path);
}

static int write_one(struct nvju_disk *disk, uint64_t block, unsigned version)
{
	_Alignas(64) uint8_t image[NVJ_BLOCK_BYTES];
	struct nvj_write write = {.block = block, .image = image};

	fill(image, block, version);
	if (nvju_disk_start_write(disk, 0, &write))
		return NVJ_EIO;
	expect(nvju_disk_finish_write(disk, 0) == &write);
	return write.error;
}

static void memory_fails_when_told(void)
{
	struct nvju_disk *disk;
	uint8_t image[NVJ_BLOCK_BYTES];
	unsigned new_sectors = 0;

	expect(nvju_disk_memory(&disk, 0, NULL) == NVJ_EINVAL);
	expect(nvju_disk_memory(&disk, 100, NULL) == 0);
	write_many(disk, NVJ_QUEUE_DEPTH, 1);
	expect(is(disk, 63, 1) && nvju_disk_bytes(disk));
	expect(write_one(disk, 100, 1) == NVJ_EIO);
	expect(nvju_disk_read(disk, 100, image) == NVJ_EIO);

	nvju_disk_fail(disk, &(struct nvju_disk_faults){.next_write = 3, .next_flush = 2});
	expect(write_one(disk, 1, 2) == 0 && write_one(disk, 2, 2) == 0);
	expect(write_one(disk, 3, 2) == NVJ_EIO && write_one(disk, 4, 2) == 0);
	expect(is(disk, 1, 2) && is(disk, 2, 2) && is(disk, 3, 1) && is(disk, 4, 2));
	expect(nvju_disk_flush(disk) == 0 && nvju_disk_flush(disk) == NVJ_EIO);
	expect(nvju_disk_flush(disk) == 0);

	nvju_disk_fail(disk,
		       &(struct nvju_disk_faults){
			       .next_read = 1, .next_write = 1, .forever = true, .torn = true});
	for (unsigned n = 10; n < 20; n++)
		expect(write_one(disk, n, 2) == NVJ_EIO);
	expect(nvju_disk_read(disk, 1, image) == NVJ_EIO);
	expect(nvju_disk_read(disk, 1, image) == NVJ_EIO);
	nvju_disk_fail(disk, &(struct nvju_disk_faults){0});
	/* Torn: each sector is the old one or the new one, and both occur. */
	for (unsigned n = 10; n < 20; n++)
		for (unsigned sector = 0; sector < 8; sector++) {
			expect(nvju_disk_read(disk, n, image) == 0);
			expect(image[sector * 512] == (uint8_t)(n * 31 + 7 + sector) ||
			       image[sector * 512] == (uint8_t)(n * 31 + 14 + sector));
			new_sectors += image[sector * 512] == (uint8_t)(n * 31 + 14 + sector);
		}
	expect(new_sectors > 10 && new_sectors < 70);
	nvju_disk_close(disk);
}

static void a_cache_loses_what_was_not_flushed(void)
{
	const struct nvju_disk_model model = {.cached = true};
	struct nvju_disk *disk;
	unsigned lost = 0;

	expect(nvju_disk_memory(&disk, 100, &model) == 0);
	write_many(disk, NVJ_QUEUE_DEPTH, 1); /* and flushes */
	for (unsigned n = 0; n < 32; n++)
		expect(write_one(disk, n, 2) == 0 && is(disk, n, 2));
	nvju_disk_crash(disk, 42);
	for (unsigned n = 0; n < 32; n++) {
		uint8_t *bytes = (uint8_t *)nvju_disk_bytes(disk) + n * NVJ_BLOCK_BYTES;

		for (unsigned sector = 0; sector < 8; sector++)
			lost += bytes[sector * 512] == (uint8_t)(n * 31 + 7 + sector);
	}
	expect(lost > 32 && lost < 32 * 8 - 32);
	for (unsigned n = 32; n < 64; n++)
		expect(is(disk, n, 1));
	write_many(disk, NVJ_QUEUE_DEPTH, 3);
	nvju_disk_crash(disk, 43);
	for (unsigned n = 0; n < 64; n++)
		expect(is(disk, n, 3));
	nvju_disk_close(disk);
}

static uint64_t now_ns(void)
{
	struct nvju_platform platform;

	nvju_platform_init(&platform, NULL);
	return platform.platform.now_ns(platform.platform.context);
}

/* 4096 times such a number is a small one in 64 bits, or negative. */
static void a_child_does_not_keep_the_lock(void)
{
	struct nvju_disk *disk, *again;
	char path[64];
	pid_t child;

	new_file(path);
	expect(nvju_disk_open(&disk, path, NVJU_DISK_NO_URING) == 0);
	expect(nvju_disk_open(&again, path, NVJU_DISK_NO_URING) == -EBUSY);
	child = fork();
	expect(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	nvju_disk_close(disk);
	expect(nvju_disk_open(&disk, path, NVJU_DISK_NO_URING) == 0);
	nvju_disk_close(disk);
	expect(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	unlink(path);
}

static void a_block_too_far_is_no_other_block(unsigned flags)
{
	const uint64_t far[] = {(UINT64_C(1) << 52) + 5, UINT64_C(1) << 51,
				(uint64_t)INT64_MAX / NVJ_BLOCK_BYTES, UINT64_MAX - 1};
	uint8_t image[NVJ_BLOCK_BYTES];
	struct nvju_disk *disk;
	char path[64];

	expect(nvju_disk_open(&disk, new_file(path), flags | NVJU_DISK_CREATE) == 0);
	expect(write_one(disk, 5, 1) == 0);
	for (unsigned n = 0; n < sizeof(far) / sizeof(far[0]); n++) {
		expect(write_one(disk, far[n], 2) == NVJ_EIO);
		expect(strstr(nvju_error(), path));
		expect(nvju_disk_read(disk, far[n], image) == NVJ_EIO);
		expect(is(disk, 5, 1));
	}
	nvju_disk_close(disk);
	unlink(path);
}

static void no_memory_is_no_wrong_argument(void)
{
	struct nvju_disk *disk;

	no_memory_is_left = true;
	expect(nvju_disk_memory(&disk, 100, NULL) == NVJ_ENOMEM && !disk);
	expect(strstr(nvju_error(), "no memory"));
	expect(nvju_disk_memory(&disk, 0, NULL) == NVJ_EINVAL && !disk);
	no_memory_is_left = false;
}

static void channels_take_their_time(void)
{
	const struct nvju_disk_model model = {.channels = 4, .write_ns = 200000};
	struct nvju_disk *disk;
	uint64_t began;

	expect(nvju_disk_memory(&disk, 64, &model) == 0);
	began = now_ns();
	write_many(disk, NVJ_QUEUE_DEPTH, 1); /* 64 writes, 4 at a time */
	expect(now_ns() - began >= 16 * UINT64_C(200000));
	nvju_disk_close(disk);
}

int main(void)
{
	a_file_keeps_blocks(0);
	a_file_keeps_blocks(NVJU_DISK_BUFFERED);
	a_file_keeps_blocks(NVJU_DISK_NO_URING);
	a_file_keeps_blocks(NVJU_DISK_NO_URING | NVJU_DISK_BUFFERED);
	a_block_too_far_is_no_other_block(0);
	a_block_too_far_is_no_other_block(NVJU_DISK_NO_URING);
	a_child_does_not_keep_the_lock();
	memory_fails_when_told();
	no_memory_is_no_wrong_argument();
	a_cache_loses_what_was_not_flushed();
	channels_take_their_time();
	return 0;
}
