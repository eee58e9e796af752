/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvj recover for disks that ext4nvj has marked: on an ext4 by mke2fs, with a
 * journal in which its superblock is changed. e2fsck judges what comes of it.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/crc32c.h"
#include "nvjournal_user.h"
#include "user_expect.h"

/* Of ext4's superblock, from byte 1024 of the disk on. */
#define STATE_AT (1024 + 0x3a)
#define INCOMPAT_AT (1024 + 0x60)
#define LABEL_AT (1024 + 0x78)
#define JOURNAL_UUID_AT (1024 + 0xd0)
#define ERROR_COUNT_AT (1024 + 0x194)
#define ERROR_CODE_AT (1024 + 0x27a) /* of the first error */
#define ERROR_TIME_AT (1024 + 0x198)
#define ERROR_FUNCTION_AT (1024 + 0x1a8) /* of the first error */
#define MARK_BLOCK_AT (1024 + 0x3f4)
/* Of 4096, with nothing in it. */
#define MARK_BLOCK 4090u
#define RECOVER 4u
#define MARK 0x40000000u
#define HAS_ERRORS 2u /* a state */

static char directory[64];
static uint8_t journal_uuid[16]; /* of the last one made */

/* Runs a command in the directory; its exit code. What it says is in "out". */
__attribute__((format(printf, 1, 2))) static int run(const char *format, ...)
{
	char command[600], all[1000];
	va_list arguments;
	int status;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	snprintf(all, sizeof(all), "PATH=$PATH:/usr/sbin:/sbin; cd %s && { %s; } > out 2>&1",
		 directory, command);
	status = system(all);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Runs it: its exit code must be that, and it must say the text. */
__attribute__((format(printf, 3, 4))) static void says(int code, const char *text,
						       const char *format, ...)
{
	char command[400];
	va_list arguments;
	int got;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	got = run("{ %s; } > said 2>&1", command);
	if (got == code && run("grep -qF -- '%s' said", text) == 0)
		return;
	fprintf(stderr, "%s: exit code %d, wanted %d and \"%s\"\n", command, got, code, text);
	snprintf(command, sizeof(command), "cat %s/said >&2", directory);
	(void)!system(command);
	exit(1);
}

static void transfer(bool in, uint8_t block[NVJ_BLOCK_BYTES])
{
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/disk", directory);
	fd = open(path, O_RDWR);
	expect(fd >= 0);
	expect((in ? pread(fd, block, NVJ_BLOCK_BYTES, 0)
		   : pwrite(fd, block, NVJ_BLOCK_BYTES, 0)) == (ssize_t)NVJ_BLOCK_BYTES);
	expect(close(fd) == 0);
}

static uint32_t *word(uint8_t *block, unsigned at)
{
	return (uint32_t *)(void *)(block + at);
}

static void seal_super(uint8_t *block)
{
	*word(block, 1024 + 0x3fc) = nvj_crc32c(~0u, block + 1024, 0x3fc);
}

/* Errors that ext4 has found, in a superblock. */
static void put_errors(uint8_t *block, uint32_t count, const char *function, uint8_t code)
{
	block[STATE_AT] |= HAS_ERRORS;
	*word(block, ERROR_COUNT_AT) = count;
	*word(block, ERROR_TIME_AT) = 1;
	block[ERROR_CODE_AT] = code;
	strcpy((char *)block + ERROR_FUNCTION_AT, function);
	seal_super(block);
}

static uint32_t logged_errors; /* that crash() puts into the journal */

/*
 * What a crash of ext4nvj leaves: the disk marked, with the journal's UUID, and
 * in the journal a new label, which is not at home.
 */
static void crash(const char *region_name, bool marked)
{
	struct nvj_format_options format = {.partitions = 2};
	static _Alignas(64) uint8_t block[NVJ_BLOCK_BYTES];
	char path[100];
	struct nvju_region *region;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	struct nvj_options options = {0};
	struct nvj_report report;
	struct nvj *journal;
	struct nvj_handle handle;

	snprintf(path, sizeof(path), "%s/%s", directory, region_name);
	expect(nvju_region_open(&region, path, 4096, 4 << 20, NVJU_CREATE | NVJ_ALLOW_VOLATILE) ==
	       0);
	nvju_uuid(format.uuid);
	memcpy(journal_uuid, format.uuid, 16);
	transfer(true, block);
	memcpy(format.disk_uuid, block + 1024 + 0x68, 16);
	expect(nvj_format(nvju_region(region), &format) == 0);
	if (marked) {
		*word(block, INCOMPAT_AT) |= RECOVER | MARK;
		memcpy(block + JOURNAL_UUID_AT, format.uuid, 16);
		seal_super(block);
		transfer(false, block);
	}
	snprintf(path, sizeof(path), "%s/disk", directory);
	expect(nvju_disk_open(&disk, path, 0) == 0);
	nvju_platform_init(&platform, disk);
	expect(nvj_open(&journal, nvju_region(region), &platform.platform, &options, &report) == 0);
	expect(nvj_start(journal, &handle, NVJ_BLOCK_CREDITS) == 0);
	expect(nvj_access(&handle, 0, block) == 0);
	memcpy(block + LABEL_AT, "committed", 10);
	seal_super(block);
	if (logged_errors)
		put_errors(block, logged_errors, "logged_before", 2 /* EIO */);
	/* ext4nvj logs all of this block. */
	expect(nvj_log(&handle, 0, block, NVJ_ALL_LINES) > 0);
	expect(nvj_commit(journal, nvj_stop(&handle)) == 0);
	nvj_abandon(journal);
	nvju_disk_close(disk);
	nvju_region_close(region);
}

static void make_disk(const char *options)
{
	expect(run("rm -f disk && mke2fs -q -F -t ext4 -b 4096 %s disk 16M", options) == 0);
	expect(run("e2fsck -fn disk") == 0);
}

static void recovers(const char *nvj, const char *options)
{
	make_disk(options);
	crash("journal", true);
	expect(run("cp journal copy") == 0);
	expect(run("e2fsck -fn disk") != 0); /* it must not replay its own, empty journal */
	says(0, "no longer needs the journal",
	     "%s recover --allow-volatile --offset 4096 journal --target disk", nvj);
	expect(run("e2fsck -fn disk") == 0);
	says(0, "committed", "dumpe2fs -h disk");
	expect(run("dumpe2fs -h disk 2>&1 | grep -E 'needs_recovery|FEATURE|Journal UUID'") == 1);
	says(0, "clean, nothing", "%s recover --allow-volatile --offset 4096 journal --target disk",
	     nvj);
	/* An older copy would undo what came after. */
	says(2, "not marked as waiting",
	     "%s recover --allow-volatile --offset 4096 copy --target disk", nvj);
}

/* All went home, and then it was interrupted: the mark is there still. */
static void goes_on(const char *nvj)
{
	make_disk("");
	crash("journal", true);
	expect(run("cp disk marked && %s recover --allow-volatile --offset 4096 journal --target "
		   "disk",
		   nvj) == 0);
	expect(run("cp marked disk") == 0);
	says(0, "\"ext4_unmarked\": true",
	     "%s recover --allow-volatile --json --offset 4096 journal --target disk", nvj);
	expect(run("e2fsck -fn disk") == 0);
}

/* ext4 also writes errors to the disk without the journal: they are not replaced by older ones. */
static void keeps_errors(const char *nvj, uint32_t in_journal, uint32_t on_disk, const char *kept)
{
	uint8_t block[NVJ_BLOCK_BYTES];

	make_disk("-O metadata_csum");
	logged_errors = in_journal;
	crash("journal", true);
	logged_errors = 0;
	if (on_disk) {
		transfer(true, block);
		put_errors(block, on_disk, "written_directly", 3 /* ENOMEM */);
		transfer(false, block);
	}
	says(0, "no longer needs the journal",
	     "%s recover --allow-volatile --offset 4096 journal --target disk", nvj);
	says(0, "with errors", "dumpe2fs -h disk");
	says(0, kept, "dumpe2fs -h disk");
	says(0, in_journal > on_disk ? "logged_before" : "written_directly", "dumpe2fs -h disk");
	says(0, in_journal > on_disk ? "EIO" : "ENOMEM", "dumpe2fs -h disk");
	says(0, "committed", "dumpe2fs -h disk");
}

static void refuses(const char *nvj)
{
	uint8_t block[NVJ_BLOCK_BYTES];

	make_disk("");
	crash("older", true);
	/* Formatted anew, as each mount does: the older region fits no more, whatever is said. */
	crash("journal", true);
	expect(run("cp disk before") == 0);
	says(2, "waits for journal",
	     "%s recover --allow-volatile --offset 4096 older --target disk", nvj);
	says(2, "waits for journal",
	     "%s recover --allow-volatile --offset 4096 older --target disk --any-disk", nvj);
	expect(run("cmp disk before") == 0);

	/* Left by ext4 itself: its own journal comes first. */
	make_disk("");
	crash("journal", false);
	transfer(true, block);
	*word(block, INCOMPAT_AT) |= RECOVER;
	seal_super(block);
	transfer(false, block);
	expect(run("cp disk before") == 0);
	says(2, "journal of its own",
	     "%s recover --allow-volatile --offset 4096 journal --target disk --any-disk", nvj);
	expect(run("cmp disk before") == 0);

	/* A superblock that is damaged after all is home is left as it is. */
	make_disk("-O metadata_csum");
	crash("journal", true);
	expect(run("%s recover --allow-volatile --offset 4096 journal --target disk", nvj) == 0);
	transfer(true, block);
	*word(block, INCOMPAT_AT) |= RECOVER | MARK;
	memcpy(block + JOURNAL_UUID_AT, journal_uuid, 16);
	transfer(false, block);
	expect(run("cp disk before") == 0);
	says(1, "checksum is wrong",
	     "%s recover --allow-volatile --offset 4096 journal --target disk", nvj);
	expect(run("cmp disk before") == 0);
}

/* A checkpoint has said that the disk has all up to that transaction. */
static void mark_tail(uint64_t tid)
{
	static uint8_t block[NVJ_BLOCK_BYTES];
	struct nvj_disk_mark mark;
	char path[100];
	int fd;

	transfer(true, block);
	*word(block, MARK_BLOCK_AT) = MARK_BLOCK;
	seal_super(block);
	transfer(false, block);
	nvj_mark_make(&mark, journal_uuid, tid);
	snprintf(path, sizeof(path), "%s/disk", directory);
	fd = open(path, O_RDWR);
	expect(fd >= 0);
	expect(pwrite(fd, &mark, sizeof(mark), (off_t)MARK_BLOCK * NVJ_BLOCK_BYTES) ==
	       sizeof(mark));
	expect(close(fd) == 0);
}

/* The mark is where the disk does not reach: whether it is an older copy is not known. */
static void refuses_without_the_mark(const char *nvj)
{
	uint8_t block[NVJ_BLOCK_BYTES];

	transfer(true, block);
	*word(block, MARK_BLOCK_AT) = 1u << 30;
	seal_super(block);
	transfer(false, block);
	expect(run("cp disk before; cp journal journal.before") == 0);
	says(2, "recover journal --offset 4096 --target disk --any-disk",
	     "%s recover --allow-volatile --offset 4096 journal --target disk", nvj);
	expect(run("cmp disk before") == 0);
	says(0, "no longer needs the journal",
	     "%s recover --allow-volatile --offset 4096 journal --target disk --any-disk", nvj);
	expect(run("e2fsck -fn disk") == 0);
	expect(run("cp before disk; cp journal.before journal") == 0);
}

/* A copy of this very journal, made before a checkpoint of it. */
static void refuses_an_older_copy(const char *nvj)
{
	make_disk("-O metadata_csum");
	crash("journal", true);
	/* Its tail is the anchor of its one open: 1. */
	mark_tail(2);
	expect(run("cp disk before") == 0);
	says(2, "older copy", "%s recover --allow-volatile --offset 4096 journal --target disk",
	     nvj);
	says(2, "older copy",
	     "%s recover --allow-volatile --offset 4096 journal --target disk --any-disk", nvj);
	expect(run("cmp disk before") == 0);
	refuses_without_the_mark(nvj);
	mark_tail(1);
	says(0, "no longer needs the journal",
	     "%s recover --allow-volatile --offset 4096 journal --target disk", nvj);
	expect(run("e2fsck -fn disk") == 0);
	/* Nothing of ours is left in the superblock. */
	expect(run("cmp -i 2036:0 -n 8 disk /dev/zero") == 0);
}

static void remove_all(void)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", directory);
	(void)!system(command);
}

int main(void)
{
	const char *build = getenv("NVJ_BUILD"), *base = getenv("TMPDIR");
	char nvj[300];

	expect(build);
	snprintf(nvj, sizeof(nvj), "%s/nvj", build);
	snprintf(directory, sizeof(directory), "%s/nvj-ext4.XXXXXX", base && *base ? base : "/tmp");
	expect(mkdtemp(directory));
	atexit(remove_all);
	if (run("command -v mke2fs e2fsck dumpe2fs")) {
		printf("mke2fs, e2fsck or dumpe2fs is missing: apt-get install e2fsprogs\n");
		return 77;
	}
	recovers(nvj, "-O metadata_csum,64bit");
	recovers(nvj, "-O ^metadata_csum");
	goes_on(nvj);
	keeps_errors(nvj, 0, 3, "FS Error count:           3");
	keeps_errors(nvj, 2, 3, "FS Error count:           3");
	keeps_errors(nvj, 4, 3, "FS Error count:           4");
	refuses(nvj);
	refuses_an_older_copy(nvj);
	return 0;
}
