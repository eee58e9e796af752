/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that fails at recovery: a file that is truncated under its mapping, which
 * Linux reports like failing memory. Recovery names the place and writes nothing.
 * Other faults are passed on to the program.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "nvjournal_user.h"
#include "user_expect.h"

#define REGION_BYTES (UINT64_C(4) << 20)

/* A region with something to recover, and where its records begin. */
static uint64_t make(const char *region, const char *disk)
{
	struct nvju_options options = {
		.region_size_bytes = REGION_BYTES,
		.region_flags = NVJ_ALLOW_VOLATILE,
		.create_partitions = 1,
		.disk_flags = NVJU_DISK_CREATE,
	};
	static char image[NVJ_BLOCK_BYTES] __attribute__((aligned(64)));
	struct nvj_disk_super super;
	struct nvj_handle handle;
	struct nvju *journal;
	uint64_t begin;

	expect(nvju_open(&journal, region, disk, &options) == 0);
	expect(nvj_read_super(nvju_region(journal->region), &super) == 0);
	begin = super.partition_offset;
	for (uint64_t block = 1; block < 100; block++) {
		memset(image, 0, sizeof(image));
		expect(nvj_start(journal->journal, &handle, NVJ_BLOCK_CREDITS) == 0);
		expect(nvj_access(&handle, block, image) == 0);
		memset(image, 'x', sizeof(image));
		expect(nvj_log(&handle, block, image, NVJ_ALL_LINES) >= 0);
		(void)nvj_stop(&handle);
	}
	expect(nvj_commit(journal->journal, 0) == 0);
	nvju_abandon(journal);
	return begin;
}

/* What recovery finds when only so many bytes of the region's file are left. */
static void recovers_to(const char *path, const char *disk_path, uint64_t left,
			enum nvj_finding_kind kind, uint64_t at_least)
{
	struct nvju_platform platform;
	struct nvju_region *region;
	struct nvj_report report;
	struct nvju_disk *disk;
	char text[200];

	expect(nvju_region_open(&region, path, 0, 0, NVJ_ALLOW_VOLATILE) == 0);
	expect(nvju_disk_open(&disk, disk_path, 0) == 0);
	nvju_platform_init(&platform, disk);
	expect(truncate(path, (off_t)left) == 0);
	expect(nvj_recover_with(nvju_region(region), &platform.platform, nvju_run, &report) ==
	       NVJ_EUCLEAN);
	expect(report.findings >= 1 && report.finding[0].kind == kind);
	expect(report.finding[0].unreadable && report.finding[0].offset >= at_least);
	expect(strstr(nvju_finding_text(&report.finding[0], text, sizeof(text)),
		      "in memory that cannot be read"));
	expect(report.blocks == 0 && nvju_disk_counts(disk).writes == 0);
	nvju_disk_close(disk);
	nvju_region_close(region);
	expect(truncate(path, (off_t)REGION_BYTES) == 0);
}

static void recovery_names_what_cannot_be_read(void)
{
	char region[64], disk[64];
	uint64_t begin;

	unlink(new_file(region));
	unlink(new_file(disk));
	begin = make(region, disk);
	/* From the end to the begin, as what is cut off is lost. */
	recovers_to(region, disk, ((begin + 8 * 65 * 64) | 4095) + 1, NVJ_FOUND_RECORD, begin);
	recovers_to(region, disk, NVJ_COMMITS_OFFSET, NVJ_FOUND_COMMIT, NVJ_COMMITS_OFFSET);
	unlink(region);
	unlink(disk);
}

static sigjmp_buf out;
static volatile int caught;

static void catch (int number)
{
	(void)number;
	caught++;
	siglongjmp(out, 1);
}

/* Loads from a mapping of a file that has nothing there. */
static char fault(void)
{
	char path[64];
	int fd = open(new_file(path), O_RDWR);
	volatile char *at;

	unlink(path);
	at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	expect(at != MAP_FAILED);
	return *at;
}

static void ends_with(void (*handler)(int), const char *path)
{
	struct nvju_region *region;
	pid_t child = fork();
	int status;

	if (child == 0) {
		signal(SIGBUS, handler);
		expect(nvju_region_open(&region, path, 0, 65536, NVJ_ALLOW_VOLATILE) == 0);
		/* One that a process sends may be. */
		if (handler == SIG_IGN)
			raise(SIGBUS);
		alarm(20);
		fault();
		_exit(0);
	}
	expect(waitpid(child, &status, 0) == child);
	/* A sanitizer has a handler, and ends the program in its own way. */
	expect((WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) ||
	       (WIFEXITED(status) && WEXITSTATUS(status)));
}

static void other_faults_are_the_programs(void)
{
	struct sigaction ours = {.sa_handler = catch}, now;
	struct nvju_region *one, *two;
	char path[64];

	unlink(new_file(path));
	expect(sigaction(SIGBUS, &ours, NULL) == 0);
	expect(nvju_region_open(&one, path, 0, 65536, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	expect(nvju_region_open(&two, path, 65536, 65536, NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	nvju_region_close(one);
	if (!sigsetjmp(out, 1))
		fault();
	expect(caught == 1);
	nvju_region_close(two);
	expect(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler == catch);

	/* Without a handler of the program's own it ends, as without a region. */
	ends_with(SIG_DFL, path);
	/* Nor can a load that fails be ignored. */
	ends_with(SIG_IGN, path);
	unlink(path);
}

int main(void)
{
	recovery_names_what_cannot_be_read();
	other_faults_are_the_programs();
	return 0;
}
