/* SPDX-License-Identifier: Apache-2.0 */
/* nvju_open: makes, recovers, runs workers, says why it cannot; threads write through it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

#include "nvjournal_user.h"
#include "user_expect.h"

#define BLOCKS 64u
#define THREADS 4u

static char region[64], disk[64];
static unsigned before_commits;

static int before_commit(void *context, uint64_t tid)
{
	struct nvju_platform *platform = context;

	expect(platform->user == &before_commits && tid);
	before_commits++;
	return 0;
}

static struct nvju_options options = {
	.region_size_bytes = 2 << 20,
	.create_partitions = 4,
	.region_flags = NVJ_ALLOW_VOLATILE,
	.disk_flags = NVJU_DISK_CREATE,
	.before_commit = before_commit,
	.user = &before_commits,
};

static void read_block(struct nvju *nvju, uint64_t block, void *image)
{
	if (!nvj_peek(nvju->journal, block, image))
		expect(nvju_disk_read(nvju->disk, block, image) == 0);
}

/* Adds 1 to the number in line `line` of the block. Returns the transaction. */
static uint64_t add(struct nvju *nvju, uint64_t block, unsigned line)
{
	_Alignas(64) uint64_t image[NVJ_BLOCK_BYTES / 8];
	struct nvj_handle handle;

	expect(nvj_start(nvju->journal, &handle, NVJ_BLOCK_CREDITS) == 0);
	read_block(nvju, block, image);
	expect(nvj_access(&handle, block, image) == 0);
	image[line * 8]++;
	expect(nvj_log(&handle, block, image, NVJ_COMPARE) == 2);
	return nvj_stop(&handle);
}

static uint64_t number(struct nvju *nvju, uint64_t block, unsigned line)
{
	uint64_t image[NVJ_BLOCK_BYTES / 8];

	read_block(nvju, block, image);
	return image[line * 8];
}

/* Overwrites bytes of the region's file. */
static void overwrite(uint64_t offset, const void *bytes, size_t count)
{
	int fd = open(region, O_WRONLY);

	expect(fd >= 0 && pwrite(fd, bytes, count, (off_t)offset) == (ssize_t)count);
	close(fd);
}

/* Killed while it was made, before its superblocks; and one that has lost them later. */
static void a_journal_that_was_not_made_whole_is_made_again(void)
{
	static const uint8_t zeros[NVJ_TAIL_OFFSET];
	struct nvj_format_options format = {.partitions = 4, .uuid = {1, 2, 3}};
	struct nvju_region *r;
	struct nvju *nvju;

	unlink(new_file(region));
	unlink(new_file(disk));
	expect(nvju_region_open(&r, region, 0, options.region_size_bytes,
				NVJU_CREATE | NVJ_ALLOW_VOLATILE) == 0);
	expect(nvj_format(nvju_region(r), &format) == 0);
	nvju_region_close(r);
	overwrite(0, zeros, sizeof(zeros));
	expect(nvju_open(&nvju, region, disk, &options) == 0 && nvju->created);
	expect(nvj_commit(nvju->journal, add(nvju, 3, 3)) == 0);
	nvju_abandon(nvju);
	overwrite(0, zeros, sizeof(zeros));
	expect(nvju_open(&nvju, region, disk, &options) == NVJ_ENODATA);
	expect(strstr(nvju_error(), "there is none"));
	unlink(region);
	unlink(disk);
}

static void it_is_made_and_recovered(void)
{
	struct nvju *nvju, *second;

	unlink(new_file(region));
	unlink(new_file(disk));
	options.create_partitions = 0;
	expect(nvju_open(&nvju, region, disk, &options) == -ENOENT && strstr(nvju_error(), region));
	options.create_partitions = 4;
	expect(nvju_open(&nvju, region, disk, &options) == 0 && nvju->created);
	expect(nvju->report.clean);
	expect(nvju_open(&second, region, disk, &options) == -EBUSY);
	for (unsigned n = 0; n < BLOCKS; n++)
		expect(nvj_commit(nvju->journal, add(nvju, n, n)) == 0);
	expect(before_commits >= BLOCKS);
	add(nvju, 0, 1); /* not committed: may be lost, or not */
	nvju_abandon(nvju);

	expect(nvju_open(&nvju, region, disk, &options) == 0 && !nvju->created);
	expect(nvju->report.transactions == BLOCKS && nvju->report.blocks == BLOCKS);
	for (unsigned n = 0; n < BLOCKS; n++)
		expect(number(nvju, n, n) == 1);
	expect(number(nvju, 0, 1) == 0);
	expect(nvju_close(nvju) == 0);
}

static struct nvju *shared;

/* Each thread has blocks of its own; all share the journal. */
static void *add_many(void *argument)
{
	unsigned thread = (unsigned)(uintptr_t)argument;
	uint64_t tid = 0;

	for (unsigned n = 0; n < 2000; n++) {
		tid = add(shared, thread + THREADS * (n % 8), 60);
		if (n % 50 == 0)
			expect(nvj_commit(shared->journal, tid) == 0);
	}
	expect(nvj_commit(shared->journal, tid) == 0);
	return NULL;
}

static void threads_and_workers(void)
{
	pthread_t threads[THREADS];
	struct nvj_handle handle;

	options.worker_flags = NVJU_CHECKPOINT_WORKERS | NVJU_COMMIT_WORKERS;
	expect(nvju_open(&shared, region, disk, &options) == 0 && shared->workers);
	for (uintptr_t n = 0; n < THREADS; n++)
		expect(!pthread_create(&threads[n], NULL, add_many, (void *)n));
	for (unsigned n = 0; n < THREADS; n++)
		pthread_join(threads[n], NULL);

	/* With a handle open it stays open, and works on. */
	expect(nvj_start(shared->journal, &handle, 1) == 0);
	expect(nvju_close(shared) == NVJ_EBUSY);
	nvj_stop(&handle);
	expect(nvj_commit(shared->journal, add(shared, 1, 3)) == 0);
	expect(nvju_close(shared) == 0);

	options.worker_flags = 0;
	expect(nvju_open(&shared, region, disk, &options) == 0 && shared->report.clean);
	for (unsigned n = 0; n < 8 * THREADS; n++)
		expect(number(shared, n, 60) == 250);
	expect(number(shared, 1, 3) == 1);
	expect(nvju_close(shared) == 0);
}

static void damage_is_named(void)
{
	struct nvju_options behind = options;
	struct nvju *nvju;
	char byte;
	int fd;

	expect(nvju_open(&nvju, region, disk, &options) == 0);
	expect(nvj_commit(nvju->journal, add(nvju, 5, 5)) == 0);
	nvju_abandon(nvju);
	fd = open(region, O_RDWR);
	for (unsigned n = 0; n < 2; n++) { /* both copies of the tail */
		expect(pread(fd, &byte, 1, NVJ_TAIL_OFFSET + n * 64) == 1);
		byte ^= 4;
		expect(pwrite(fd, &byte, 1, NVJ_TAIL_OFFSET + n * 64) == 1);
	}
	close(fd);
	expect(nvju_open(&nvju, region, disk, &options) == NVJ_EUCLEAN);
	expect(strstr(nvju_error(), "tail") && strstr(nvju_error(), "nvj check"));

	/* What is no journal and not empty is not made one. */
	fd = open(region, O_RDWR | O_TRUNC);
	expect(pwrite(fd, "precious", 8, 600) == 8);
	close(fd);
	expect(nvju_open(&nvju, region, disk, &options) == NVJ_ENODATA);
	behind.region_offset = 1 << 20;
	fd = open(region, O_RDWR);
	expect(pwrite(fd, "precious", 8, (1 << 20) + 600) == 8);
	close(fd);
	expect(nvju_open(&nvju, region, disk, &behind) == NVJ_ENODATA);
	expect(strstr(nvju_error(), " --offset 1048576"));
	unlink(region);
	unlink(disk);
}

static off_t length_of(const char *path)
{
	struct stat status;

	return stat(path, &status) ? -1 : status.st_size;
}

/* It opens no journal with these options, and the text says why. */
static void refused(const char *region_path, const struct nvju_options *wrong, int error,
		    const char *text)
{
	struct nvju *nvju;
	int result = nvju_open(&nvju, region_path, disk, wrong);

	if (result == error && strstr(nvju_error(), text))
		return;
	fprintf(stderr, "%d and \"%s\", wanted %d and \"%s\"\n", result, nvju_error(), error, text);
	exit(1);
}

static void wrong_arguments_make_no_file(void)
{
	struct nvju_options wrong = options;
	struct nvju *nvju;

	unlink(new_file(region));
	unlink(new_file(disk));
	expect(nvju_open(&nvju, NULL, disk, &wrong) == NVJ_EINVAL);
	expect(nvju_open(&nvju, region, NULL, &wrong) == NVJ_EINVAL);
	wrong.create_partitions = NVJ_MAX_PARTITIONS + 1;
	refused(region, &wrong, NVJ_EINVAL, "create_partitions is 65");
	wrong = options;
	wrong.journal.checkpoint_percent = 101;
	refused(region, &wrong, NVJ_EINVAL, "checkpoint_percent is 101");
	wrong = options;
	wrong.region_flags = NVJU_READ_ONLY | NVJ_ALLOW_VOLATILE;
	refused(region, &wrong, NVJ_EINVAL, "region_flags is 0x9");
	wrong = options;
	wrong.disk_flags = NVJU_DISK_READ_ONLY;
	refused(region, &wrong, NVJ_EINVAL, "NVJU_DISK_READ_ONLY");
	expect(length_of(region) == -1 && length_of(disk) == -1);
	wrong = options;
	wrong.region_size_bytes = 65536; /* too few */
	refused(region, &wrong, NVJ_ENOSPC, "65536 bytes");
	expect(length_of(region) == -1);
	unlink(disk);
}

/* The sum and the length of the region's file. */
static uint64_t content(void)
{
	uint64_t sum = 0, word;
	FILE *file = fopen(region, "re");

	expect(file);
	while (fread(&word, sizeof(word), 1, file) == 1)
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15) + 1;
	fclose(file);
	return sum;
}

static void make_file(off_t bytes)
{
	unlink(new_file(region));
	close(open(region, O_RDWR | O_CREAT, 0600));
	expect(truncate(region, bytes) == 0);
}

static void a_new_journal_destroys_no_other_content(void)
{
	/* The superblocks of XFS, JFS and Btrfs, and the end of what is read. */
	static const uint64_t places[] = {0, 32 << 10, 64 << 10, (128 << 10) - 8};
	struct nvju_options other = options;
	struct nvju *nvju;
	uint64_t before;

	unlink(new_file(disk));
	for (unsigned n = 0; n < sizeof(places) / sizeof(places[0]); n++) {
		make_file(4 << 20);
		overwrite(places[n], "JFS1", 4);
		before = content();
		refused(region, &other, NVJ_ENODATA, "there is none");
		expect(content() == before && length_of(region) == 4 << 20);
		unlink(region);
	}

	/* Within another journal, where its ring is still empty. */
	make_file(8 << 20);
	other.region_offset = 1 << 20;
	other.region_size_bytes = 4 << 20;
	expect(nvju_open(&nvju, region, disk, &other) == 0 && nvju->created);
	expect(nvju_close(nvju) == 0);
	before = content();
	other.region_offset = 3 << 20;
	refused(region, &other, -EEXIST, "the journal that begins at byte 1048576 has");
	/* One that would take in the other. */
	other.region_offset = 0;
	refused(region, &other, -EEXIST, "another journal begins at byte 1048576");
	/* Where later ones would not find it. */
	other.region_offset = (5 << 20) + 4096;
	other.region_size_bytes = 2 << 20;
	refused(region, &other, NVJ_EINVAL, "multiple of 64K");
	expect(content() == before && length_of(region) == 8 << 20);
	other.region_offset = 5 << 20;
	expect(nvju_open(&nvju, region, disk, &other) == 0 && nvju->created);
	expect(nvju_close(nvju) == 0);
	unlink(region);
	unlink(disk);
}

/* Else the blocks would be written over the journal. */
static void the_region_is_not_the_disk(void)
{
	char link_path[80];
	struct nvju *nvju;

	unlink(new_file(disk));
	refused(disk, &options, NVJ_EINVAL, "is the same file");
	expect(length_of(disk) == -1);
	expect(nvju_open(&nvju, new_file(region), disk, &options) == 0);
	expect(nvj_commit(nvju->journal, add(nvju, 1, 1)) == 0);
	nvju_abandon(nvju);
	unlink(disk);
	snprintf(link_path, sizeof(link_path), "%s.link", region);
	expect(symlink(region, link_path) == 0);
	expect(nvju_open(&nvju, region, link_path, &options) == NVJ_EINVAL);
	expect(nvju_open(&nvju, region, disk, &options) == 0);
	expect(nvju->report.transactions == 1 && number(nvju, 1, 1) == 1);
	expect(nvju_close(nvju) == 0);
	unlink(link_path);
	unlink(region);
	unlink(disk);
}

static void a_disk_has_one_journal(void)
{
	struct nvju *nvju;
	char other[64];

	unlink(new_file(region));
	expect(nvju_open(&nvju, region, new_file(disk), &options) == 0);
	unlink(new_file(other));
	refused(other, &options, -EBUSY, "is in use by a process");
	expect(length_of(other) == -1);
	expect(nvju_close(nvju) == 0);
	expect(nvju_open(&nvju, other, disk, &options) == 0);
	expect(nvju_close(nvju) == 0);
	unlink(other);
	unlink(region);
	unlink(disk);
}

static void a_file_that_is_no_journal_keeps_its_length(void)
{
	int fd = open(new_file(region), O_RDWR);

	expect(write(fd, "precious", 8) == 8);
	close(fd);
	new_file(disk);
	refused(region, &options, NVJ_ENODATA, "there is none");
	expect(length_of(region) == 8);
	unlink(region);
	unlink(disk);
}

/* Not "the disk failed": the block has a number that no disk has. */
static void what_the_disk_reported_is_named(void)
{
	const uint64_t far = UINT64_C(1) << 51;
	_Alignas(64) uint64_t image[NVJ_BLOCK_BYTES / 8] = {0};
	struct nvj_handle handle;
	struct nvju *nvju;

	unlink(new_file(region));
	expect(nvju_open(&nvju, region, new_file(disk), &options) == 0);
	expect(nvju_disk_read(nvju->disk, far + 1, image) == NVJ_EIO); /* not the cause */
	expect(nvj_start(nvju->journal, &handle, NVJ_BLOCK_CREDITS) == 0);
	expect(nvj_access(&handle, far, image) == 0);
	image[0] = 1;
	expect(nvj_log(&handle, far, image, NVJ_COMPARE) == 2);
	expect(nvj_commit(nvju->journal, nvj_stop(&handle)) == 0);
	expect(nvju_close(nvju) == NVJ_EIO);
	expect(strstr(nvju_error(), "cannot write block 2251799813685248 of disk"));
	refused(region, &options, NVJ_EIO, "block 2251799813685248 of disk");
	unlink(region);
	unlink(disk);
}

int main(void)
{
	wrong_arguments_make_no_file();
	a_new_journal_destroys_no_other_content();
	the_region_is_not_the_disk();
	a_disk_has_one_journal();
	a_file_that_is_no_journal_keeps_its_length();
	what_the_disk_reported_is_named();
	a_journal_that_was_not_made_whole_is_made_again();
	it_is_made_and_recovered();
	threads_and_workers();
	damage_is_named();
	return 0;
}
