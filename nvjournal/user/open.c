/* SPDX-License-Identifier: Apache-2.0 */
/* nvju_open: opens a journal from two paths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "disk.h"
#include "error.h"
#include "nvjournal_user.h"
#include "others.h"
#include "region.h"

static int check_arguments(const char *region, const char *disk, const struct nvju_options *options)
{
	if (!region || !disk)
		return nvju_fail(NVJ_EINVAL, "cannot open a journal: the path of its %s is NULL",
				 region ? "disk" : "region");
	if (nvju_same_file(region, disk))
		return nvju_fail(NVJ_EINVAL,
				 "cannot open the journal in %s: its disk is the same file; give "
				 "the blocks another",
				 region);
	if (options->region_flags & ~(unsigned)NVJ_ALLOW_VOLATILE)
		return nvju_fail(NVJ_EINVAL,
				 "cannot open the journal in %s: region_flags is 0x%x, and may "
				 "only be NVJ_ALLOW_VOLATILE or 0",
				 region, options->region_flags);
	if (options->disk_flags & NVJU_DISK_READ_ONLY)
		return nvju_fail(
			NVJ_EINVAL,
			"cannot open the journal in %s: with NVJU_DISK_READ_ONLY it cannot "
			"write to its disk; nvj_check needs no disk",
			region);
	if (options->journal.checkpoint_percent > 100)
		return nvju_fail(NVJ_EINVAL,
				 "cannot open the journal in %s: checkpoint_percent is %u, and may "
				 "be 1 to 100, or 0 for 50",
				 region, options->journal.checkpoint_percent);
	if (options->create_partitions > NVJ_MAX_PARTITIONS)
		return nvju_fail(NVJ_EINVAL,
				 "cannot open the journal in %s: create_partitions is %u, and may "
				 "be 1 to %u, or 0 to make none",
				 region, options->create_partitions, NVJ_MAX_PARTITIONS);
	return 0;
}

static int open_region(struct nvju *opened, const char *path, const struct nvju_options *options)
{
	struct nvj_format_options format = {
		.partitions = options->create_partitions,
		.now_unix = (uint64_t)time(NULL),
	};
	struct nvj_disk_super super;
	int error, unused;

	error = nvju_region_open(&opened->region, path, options->region_offset,
				 options->region_size_bytes,
				 (options->region_flags & NVJ_ALLOW_VOLATILE) |
					 (options->create_partitions ? NVJU_CREATE : 0));
	if (error || !options->create_partitions ||
	    nvj_read_super(nvju_region(opened->region), &super) != NVJ_ENODATA)
		return error;
	unused = nvju_unused(path, nvju_region(opened->region));
	if (unused <= 0)
		return unused; /* open_journal says that there is none */
	error = nvju_refuse_others(path, options->region_offset, nvju_region(opened->region), 0);
	if (error)
		return error;
	memcpy(format.disk_uuid, options->journal.disk_uuid, sizeof(format.disk_uuid));
	nvju_uuid(format.uuid);
	error = nvj_format(nvju_region(opened->region), &format);
	if (error)
		return nvju_fail(
			error,
			"cannot make a journal of %u partitions in the %llu bytes of %s: %s; "
			"give it more bytes or fewer partitions",
			options->create_partitions,
			(unsigned long long)nvju_region(opened->region)->size_bytes, path,
			nvj_strerror(error));
	opened->created = true;
	return 0;
}

/* What the disk has reported says more than the error of the engine. */
static const char *cause(const struct nvju *opened, int error)
{
	const char *failure = nvju_disk_failure(opened->disk);

	return *failure && (error == NVJ_EIO || error == NVJ_EROFS) ? failure : nvj_strerror(error);
}

static int say_why(const struct nvju *opened, const char *path, uint64_t offset, int error)
{
	char journal[NVJU_JOURNAL_BYTES], text[160];

	nvju_journal(path, offset, journal);
	switch (error) {
	case NVJ_ENODATA:
		return nvju_fail(error,
				 "cannot open the journal in %s: there is none; make one: nvj "
				 "format %s",
				 path, journal);
	case NVJ_EUCLEAN:
		if (opened->report.findings)
			nvju_finding_text(&opened->report.finding[0], text, sizeof(text));
		else
			snprintf(text, sizeof(text),
				 "its superblock is, or does not fit the %llu bytes mapped",
				 (unsigned long long)nvju_region(opened->region)->size_bytes);
		return nvju_fail(error,
				 "cannot recover the journal in %s: it is damaged (%s), and %s "
				 "written; look: nvj check %s",
				 path, text,
				 opened->report.blocks ? "not all of it was" : "nothing was",
				 journal);
	case NVJ_EMEDIUM:
		return nvju_fail(error,
				 "cannot open the journal in %s: it belongs to another disk; look: "
				 "nvj inspect %s",
				 path, journal);
	default:
		return nvju_fail(error, "cannot open the journal in %s: %s", path,
				 cause(opened, error));
	}
}

static int open_journal(struct nvju *opened, const char *path, const struct nvju_options *options)
{
	struct nvj_options journal = options->journal;
	int error;

	nvju_platform_init(&opened->platform, opened->disk);
	opened->platform.user = options->user;
	opened->platform.platform.before_commit = options->before_commit;
	opened->platform.platform.aborted = options->aborted;
	journal.recover_with = nvju_run;
	journal.workers = options->worker_flags & NVJU_CHECKPOINT_WORKERS;
	error = nvj_open(&opened->journal, nvju_region(opened->region), &opened->platform.platform,
			 &journal, &opened->report);
	if (error) {
		opened->journal = NULL;
		return say_why(opened, path, options->region_offset, error);
	}
	if (!options->worker_flags)
		return 0;
	error = nvju_workers_start(&opened->workers, opened->journal, options->worker_flags);
	if (error) {
		nvj_abandon(opened->journal);
		opened->journal = NULL;
	}
	return error;
}

static void close_rest(struct nvju *opened)
{
	nvju_disk_close(opened->disk);
	nvju_region_close(opened->region);
	free(opened);
}

int nvju_open(struct nvju **result, const char *region, const char *disk,
	      const struct nvju_options *options)
{
	static const struct nvju_options defaults;
	struct nvju_file_before before;
	struct nvju *opened;
	int error;

	*result = NULL;
	if (!options)
		options = &defaults;
	error = check_arguments(region, disk, options);
	if (error)
		return error;
	opened = calloc(1, sizeof(*opened));
	if (!opened)
		return nvju_fail(NVJ_ENOMEM, "cannot open the journal in %s: no memory", region);
	nvju_note_file(&before, region);
	error = nvju_disk_open(&opened->disk, disk, options->disk_flags);
	if (!error)
		error = open_region(opened, region, options);
	if (!error)
		error = open_journal(opened, region, options);
	if (error) {
		/* A file that is no journal must not become longer. */
		if (opened->region && !opened->created)
			nvju_restore_file(&before, region,
					  options->region_offset +
						  nvju_region(opened->region)->size_bytes);
		close_rest(opened);
		return error;
	}
	*result = opened;
	return 0;
}

int nvju_close(struct nvju *opened)
{
	int error;

	if (!opened)
		return 0;
	/*
	 * Without workers, the thread that needs room makes it. So the journal
	 * still works if it cannot be closed.
	 */
	nvju_workers_stop(opened->workers);
	opened->workers = NULL;
	error = nvj_close(opened->journal);
	if (error == NVJ_EBUSY)
		return nvju_fail(error,
				 "cannot close the journal: handles are open; stop them first");
	if (error)
		nvju_fail(error,
			  "cannot write all of the journal to the disk: %s; the region keeps it "
			  "for the next open",
			  cause(opened, error));
	close_rest(opened);
	return error;
}

void nvju_abandon(struct nvju *opened)
{
	if (!opened)
		return;
	nvju_workers_stop(opened->workers);
	nvj_abandon(opened->journal);
	close_rest(opened);
}
