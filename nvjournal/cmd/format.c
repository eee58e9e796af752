/* SPDX-License-Identifier: Apache-2.0 */
/* nvj format: makes an empty journal, and protects existing content. */
#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "../user/error.h"
#include "../user/others.h"
#include "../user/present.h"
#include "../user/region.h"
#include "nvj.h"

/*
 * Returns 0 if formatting the region loses nothing of the journal that is there, which may
 * be longer, and which look shows. Otherwise prints an error.
 */
static int refuse_content(const char *file, uint64_t offset, const struct nvj_region *region,
			  const struct look *look)
{
	struct nvj_report report = {0};
	char text[NVJU_JOURNAL_BYTES];
	int error = look->super_error;

	if (error == NVJ_ENODATA) {
		int unused = nvju_unused(file, region);

		if (unused < 0)
			complain("%s", nvju_error());
		if (unused)
			return unused < 0 ? -1 : 0;
		complain("cannot format %s: it is not empty and not a journal; empty it, use "
			 "another, or destroy it with --force",
			 file);
		return -1;
	}
	if (error == NVJ_EFORMAT) {
		complain("cannot format %s: it holds a journal of a later format, and this nvj "
			 "cannot check whether it is empty; destroy it with --force",
			 file);
		return -1;
	}
	if (!error)
		error = nvj_check(nvju_region(look->region), &look->platform.platform, &report);
	if (error) {
		complain("cannot format %s: it holds a journal that is damaged (nvj check %s), "
			 "and may not all be at home; destroy it with --force",
			 file, nvju_journal(file, offset, text));
		return -1;
	}
	if (report.clean)
		return 0;
	complain("cannot format %s: it holds a journal with %" PRIu64 " transactions that are not "
		 "at home; recover it first: nvj recover %s --target DISK, or discard them with "
		 "--force",
		 file, report.transactions, nvju_journal(file, offset, text));
	return -1;
}

/* Returns 0 if formatting the region, which is locked, loses nothing. Otherwise prints an error. */
static int refuse(const char *file, uint64_t offset, const struct nvj_region *region)
{
	struct look look;
	int result;

	if (look_at(&look, file, offset, true))
		return -1;
	result = refuse_content(file, offset, region, &look);
	if (!result) {
		result = nvju_refuse_others(file, offset, region,
					    look.super_error ? 0 : look.super.size_bytes);
		if (result)
			complain("%s", nvju_error());
	}
	look_away(&look);
	return result;
}

/* Says why there are so many partitions, if the user did not choose the number. */
static void print_choice(uint32_t partitions, uint32_t processors)
{
	if (partitions == processors)
		printf("partitions: one for each processor of the machine\n");
	else if (partitions == NVJ_MAX_PARTITIONS)
		printf("partitions: the most that there can be, for %u processors\n", processors);
	else
		printf("partitions: at most one for %u MiB of the journal; the machine has %u "
		       "processors\n",
		       (unsigned)(NVJ_USUAL_PARTITION_BYTES >> 20), processors);
}

static int make(const char *file, const struct nvj_region *region,
		struct nvj_format_options *options)
{
	uint32_t processors = 0;
	struct nvj_disk_super super;
	char uuid[37];
	int error;

	if (!options->partitions) {
		processors = nvju_count_processors();
		options->partitions = nvj_usual_partitions(region->size_bytes, processors);
	}
	nvju_uuid(options->uuid);
	options->now_unix = (uint64_t)time(NULL);
	error = nvj_format(region, options);
	if (error == NVJ_ENOSPC) {
		complain("cannot format %s: %" PRIu64 " bytes are too few for the superblocks, the "
			 "commit ring and %u partition%s of at least %u bytes; give more bytes "
			 "(--size), or fewer partitions or commits",
			 file, region->size_bytes, options->partitions,
			 options->partitions == 1 ? "" : "s", NVJ_MIN_RING_LINES * NVJ_LINE_BYTES);
		return EXIT_DAMAGED;
	}
	if (error == NVJ_EINVAL) {
		complain("cannot format %s: partitions must be 1 to %u, commits a power of two "
			 "from %u to %u, and a partition at most %" PRIu64 " bytes",
			 file, NVJ_MAX_PARTITIONS, NVJ_MIN_COMMITS, NVJ_MAX_COMMITS,
			 (uint64_t)NVJ_MAX_RING_LINES * NVJ_LINE_BYTES);
		return EXIT_UNUSABLE;
	}
	if (!error)
		error = nvj_read_super(region, &super);
	if (error) {
		complain("cannot format %s: %s", file, nvj_strerror(error));
		return EXIT_DAMAGED;
	}
	printf("%s: journal %s, %u partitions of %" PRIu64 " bytes by %s, %u commits\n", file,
	       uuid_text(super.uuid, uuid), super.partitions, super.ring_lines * NVJ_LINE_BYTES,
	       placement_text(&super), super.commits);
	if (processors)
		print_choice(super.partitions, processors);
	return EXIT_SOUND;
}

/* A missing device must not become a file in /dev, which is in memory. */
static bool names_device(const char *file)
{
	return !strncmp(file, "/dev/", 5) && strncmp(file, "/dev/shm/", 9);
}

/* A number that was not given. The engine calls it 0, which no user may choose. */
#define NOT_GIVEN UINT64_MAX

static bool in_range(uint64_t given, uint32_t most)
{
	return given == NOT_GIVEN || (given > 0 && given <= most);
}

int command_format(int count, char **words)
{
	uint64_t size = 0, offset = 0, partitions = NOT_GIVEN, commits = NOT_GIVEN;
	struct nvj_format_options options = {0};
	bool force = false, allow_volatile = false;
	const struct argument arguments[] = {
		{"--size", ARGUMENT_SIZE, &size, NULL},
		{"--offset", ARGUMENT_SIZE, &offset, NULL},
		{"--partitions", ARGUMENT_COUNT, &partitions, NULL},
		{"--placement", ARGUMENT_PLACEMENT, &options.placement, NULL},
		{"--commits", ARGUMENT_COUNT, &commits, NULL},
		{"--disk-uuid", ARGUMENT_UUID, options.disk_uuid, NULL},
		{"--force", ARGUMENT_FLAG, &force, NULL},
		{"--allow-volatile", ARGUMENT_FLAG, &allow_volatile, NULL},
		{0},
	};
	struct nvju_region *region;
	const char *file;
	struct nvju_file_before before;
	int result;

	result = read_arguments("format", count, words, arguments, &file);
	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	if (!in_range(partitions, NVJ_MAX_PARTITIONS) || !in_range(commits, NVJ_MAX_COMMITS)) {
		complain("cannot format %s: partitions must be 1 to %u, commits a power of two "
			 "from %u to %u",
			 file, NVJ_MAX_PARTITIONS, NVJ_MIN_COMMITS, NVJ_MAX_COMMITS);
		return EXIT_UNUSABLE;
	}
	nvju_note_file(&before, file);
	if (!size && !before.existed) {
		complain("cannot format %s: there is no such file; to make it, give its size: "
			 "--size 64M",
			 file);
		return EXIT_UNUSABLE;
	}
	options.partitions = partitions == NOT_GIVEN ? 0 : (uint32_t)partitions;
	options.commits = commits == NOT_GIVEN ? 0 : (uint32_t)commits;
	if (nvju_region_open(&region, file, offset, size,
			     (size && !names_device(file) ? NVJU_CREATE : 0) |
				     (allow_volatile ? NVJ_ALLOW_VOLATILE : 0))) {
		complain("%s", nvju_error());
		return EXIT_UNUSABLE;
	}
	if (!force && refuse(file, offset, nvju_region(region)))
		result = EXIT_DAMAGED;
	else
		result = make(file, nvju_region(region), &options);
	if (result != EXIT_SOUND)
		nvju_restore_file(&before, file, offset + nvju_region(region)->size_bytes);
	nvju_region_close(region);
	return result;
}
