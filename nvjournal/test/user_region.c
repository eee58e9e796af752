/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: files are made, sliced, locked and kept; DRAM is as slow as it was told to be. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "nvjournal_user.h"
#include "user_expect.h"
#include "clock.h"

static void write_line(const struct nvj_region *region, uint64_t offset, char letter)
{
	char line[NVJ_LINE_BYTES];

	memset(line, letter, sizeof(line));
	region->persistence->write(region->persistence, (char *)region->base + offset, line,
				   sizeof(line));
}

static void a_file_is_made_and_keeps_what_was_fenced(void)
{
	struct nvju_region *region;
	struct stat status;
	char path[64], byte;
	int fd;

	unlink(new_file(path));
	expect(nvju_region_open(&region, path, 0, 0, NVJ_ALLOW_VOLATILE) == -ENOENT);
	expect(strstr(nvju_error(), path));
	/* Nor is it made without a size. */
	expect(nvju_region_open(&region, path, 0, 0, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == -ENOENT);
	expect(strstr(nvju_error(), "give a size to make it"));
	expect(stat(path, &status) < 0 && errno == ENOENT);
	expect(nvju_region_open(&region, path, 0, 1 << 20, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	expect(stat(path, &status) == 0 && status.st_size == 1 << 20);
	expect(nvju_region(region)->size_bytes == 1 << 20);
	expect((uintptr_t)nvju_region(region)->base % NVJ_LINE_BYTES == 0);
	/* More pages, apart from each other, than the list of a thread holds. */
	for (unsigned n = 0; n < 100; n++)
		write_line(nvju_region(region), n * 8192, 'x');
	nvju_region(region)->persistence->store64(nvju_region(region)->persistence,
						  nvju_region(region)->base,
						  UINT64_C(0x7a7a7a7a7a7a7a7a));
	nvju_region(region)->persistence->fence(nvju_region(region)->persistence);
	fd = open(path, O_RDONLY);
	for (unsigned n = 0; n < 100; n++) {
		expect(pread(fd, &byte, 1, n * 8192 + 63) == 1 && byte == 'x');
		expect(pread(fd, &byte, 1, n * 8192) == 1 && byte == (n ? 'x' : 'z'));
	}
	close(fd);
	nvju_region_close(region);

	/* Without a size: to the end; and what was there is there. */
	expect(nvju_region_open(&region, path, 8192, 0, NVJ_ALLOW_VOLATILE) == 0);
	expect(nvju_region(region)->size_bytes == (1 << 20) - 8192);
	expect(*(char *)nvju_region(region)->base == 'x');
	nvju_region_close(region);
	unlink(path);
}

static void a_region_is_open_once_and_slices_are_apart(void)
{
	struct nvju_region *one, *two, *reader;
	char path[64];

	new_file(path);
	expect(nvju_region_open(&one, path, 0, 65536, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	expect(nvju_region_open(&two, path, 0, 65536, NVJ_ALLOW_VOLATILE) == -EBUSY);
	expect(strstr(nvju_error(), "in use"));
	expect(nvju_region_open(&two, path, 61440, 8192, NVJU_CREATE | NVJ_ALLOW_VOLATILE) ==
	       -EBUSY);
	expect(nvju_region_open(&reader, path, 0, 0, NVJU_READ_ONLY) == -EBUSY);
	expect(nvju_region_open(&reader, path, 0, 0, NVJU_READ_ONLY | NVJU_UNLOCKED) == 0);
	nvju_region_close(reader);
	expect(nvju_region_open(&two, path, 65536, 65536, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	write_line(nvju_region(one), 65536 - 64, '1');
	write_line(nvju_region(two), 0, '2');
	nvju_region(one)->persistence->fence(nvju_region(one)->persistence);
	nvju_region(two)->persistence->fence(nvju_region(two)->persistence);
	nvju_region_close(one);
	expect(nvju_region_open(&one, path, 0, 65536, NVJ_ALLOW_VOLATILE) == 0);
	nvju_region_close(one);
	nvju_region_close(two);
	/* Readers do not hinder each other. */
	expect(nvju_region_open(&one, path, 0, 0, NVJU_READ_ONLY) == 0);
	expect(nvju_region_open(&two, path, 0, 0, NVJU_READ_ONLY) == 0);
	expect(((char *)nvju_region(one)->base)[65535] == '1');
	expect(((char *)nvju_region(one)->base)[65536] == '2');
	nvju_region_close(one);
	nvju_region_close(two);
	unlink(path);
}

static void a_child_does_not_keep_the_lock(void)
{
	struct nvju_region *region, *again;
	char path[64];
	pid_t child;

	new_file(path);
	expect(nvju_region_open(&region, path, 0, 65536, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	/* A child that closes it does not unlock it for its parent. */
	child = fork();
	expect(child >= 0);
	if (!child) {
		nvju_region_close(region);
		_exit(0);
	}
	expect(waitpid(child, NULL, 0) == child);
	expect(nvju_region_open(&again, path, 0, 65536, NVJ_ALLOW_VOLATILE) == -EBUSY);
	child = fork();
	expect(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	nvju_region_close(region);
	expect(nvju_region_open(&region, path, 0, 65536, NVJ_ALLOW_VOLATILE) == 0);
	nvju_region_close(region);
	expect(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	unlink(path);
}

static void what_cannot_be_mapped_is_refused(void)
{
	struct nvju_region *region;
	struct stat status;
	char path[64];

	new_file(path);
	expect(nvju_region_open(&region, path, 0, 0, NVJ_ALLOW_VOLATILE) == -EINVAL); /* empty */
	expect(nvju_region_open(&region, path, 100, 4096, 0) == NVJ_EINVAL);
	expect(nvju_region_open(&region, path, 0, 100, 0) == NVJ_EINVAL);
	/* In 64 bits, 4096 more than such a size is 0. */
	expect(nvju_region_open(&region, path, 4096, UINT64_MAX - 4095, NVJ_ALLOW_VOLATILE) ==
	       NVJ_EINVAL);
	expect(nvju_region_open(&region, path, 0, 8192, NVJ_ALLOW_VOLATILE) ==
	       -EINVAL); /* shorter */
	expect(nvju_region_open(&region, path, 0, 0, NVJU_UNLOCKED) == NVJ_EINVAL);
	expect(nvju_region_open(&region, "/dev/null", 0, 4096, 0) < 0);
	expect(nvju_region_open(&region, "/", 0, 4096, NVJU_READ_ONLY) < 0);
	expect(stat(path, &status) == 0 && status.st_size == 0);
	unlink(path);
}

/* They return an error; a store into the mapping would end the program. */
static void a_region_to_read_is_not_written(void)
{
	const struct nvj_format_options format = {.uuid = {1}};
	const struct nvj_options options = {0};
	struct nvju_platform platform;
	struct nvju_region *region;
	struct nvju_disk *disk;
	struct nvj_report report;
	struct nvj *journal;
	char path[64];

	expect(nvju_disk_memory(&disk, 8, NULL) == 0);
	nvju_platform_init(&platform, disk);
	expect(nvju_region_open(&region, new_file(path), 0, 1 << 20,
				NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	expect(nvj_format(nvju_region(region), &format) == 0);
	nvju_region_close(region);
	expect(nvju_region_open(&region, path, 0, 0, NVJU_READ_ONLY) == 0);
	expect(nvj_format(nvju_region(region), &format) == NVJ_EINVAL);
	expect(nvj_recover(nvju_region(region), &platform.platform, &report) == NVJ_EINVAL);
	expect(nvj_open(&journal, nvju_region(region), &platform.platform, &options, &report) ==
	       NVJ_EINVAL);
	expect(nvj_check(nvju_region(region), &platform.platform, &report) == 0);
	nvju_region_close(region);
	nvju_disk_close(disk);
	unlink(path);
}

/* A plain file is no persistent memory, and is taken by who says that it may be volatile. */
static void what_is_volatile_is_asked_for(void)
{
	struct nvju_region *region;
	struct nvju_options options = {.region_size_bytes = 2 << 20,
				       .create_partitions = 1,
				       .disk_flags = NVJU_DISK_CREATE};
	struct nvju *nvju;
	struct stat status;
	char path[64], disk[64];

	unlink(new_file(path));
	expect(nvju_region_open(&region, path, 0, 65536, NVJU_CREATE) == -EOPNOTSUPP);
	expect(strstr(nvju_error(), path) && strstr(nvju_error(), "MAP_SYNC") &&
	       strstr(nvju_error(), "--allow-volatile"));
	expect(stat(path, &status) < 0 && errno == ENOENT);
	expect(nvju_region_open(&region, path, 0, 65536, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	expect(strstr(nvju_region_how(region), "msync"));
	nvju_region_close(region);
	expect(nvju_region_open(&region, path, 0, 0, 0) == -EOPNOTSUPP);
	expect(stat(path, &status) == 0 && status.st_size == 65536);
	/* To read it is safe. */
	expect(nvju_region_open(&region, path, 0, 0, NVJU_READ_ONLY) == 0);
	nvju_region_close(region);
	unlink(path);

	new_file(disk);
	expect(nvju_open(&nvju, path, disk, &options) == -EOPNOTSUPP);
	options.region_flags = NVJ_ALLOW_VOLATILE;
	expect(nvju_open(&nvju, path, disk, &options) == 0 && nvju_close(nvju) == 0);
	unlink(path);
	unlink(disk);
}

static void dram_is_slow_if_so_told(void)
{
	const struct nvju_dram slow = {.fence_ns = 200000};
	const struct nvju_dram narrow = {.bytes_per_second = 64 * 1000 * 1000};
	const struct nvju_dram wrong = {.persistence = "paper"};
	struct nvju_region *region;
	const struct nvj_region *r;
	uint64_t began;

	expect(nvju_region_dram(&region, 1 << 20, NULL) == 0);
	write_line(nvju_region(region), 0, 'a');
	expect(*(char *)nvju_region(region)->base == 'a');
	nvju_region_close(region);

	expect(nvju_region_dram(&region, 1 << 20, &wrong) == NVJ_EINVAL);
	expect(nvju_region_dram(&region, 0, NULL) == NVJ_ENOMEM);

	/* Never faster than told; slower it may be. */
	expect(nvju_region_dram(&region, 1 << 20, &slow) == 0);
	r = nvju_region(region);
	began = nvju_monotonic_ns();
	for (unsigned n = 0; n < 10; n++)
		r->persistence->fence(r->persistence);
	expect(nvju_monotonic_ns() - began > 1900000);
	nvju_region_close(region);

	/* A line a microsecond. */
	expect(nvju_region_dram(&region, 1 << 20, &narrow) == 0);
	r = nvju_region(region);
	began = nvju_monotonic_ns();
	for (unsigned n = 0; n < 2000; n++)
		write_line(r, n * 64, 'b');
	r->persistence->fence(r->persistence);
	expect(nvju_monotonic_ns() - began > 1900000);
	nvju_region_close(region);
}

int main(void)
{
	a_file_is_made_and_keeps_what_was_fenced();
	a_region_is_open_once_and_slices_are_apart();
	a_child_does_not_keep_the_lock();
	what_cannot_be_mapped_is_refused();
	a_region_to_read_is_not_written();
	what_is_volatile_is_asked_for();
	dram_is_slow_if_so_told();
	return 0;
}
