/* SPDX-License-Identifier: Apache-2.0 */
/* nvj recover: writes committed data to the disk, if the disk belongs to the
 * journal. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../user/disk.h"
#include "../user/error.h"
#include "../user/region.h"
#include "nvj.h"

/* Returns 0 if target is the disk that the journal names, or if it names
 * none. */
static int right_disk(const char *file, const struct nvj_disk_super *super,
		      const struct fs_disk *fs, const char *target, const uint8_t given[16])
{
	char wanted[37], has[37];
	const uint8_t *uuid = given;

	if (is_zero(super->disk_uuid, 16))
		return 0;
	uuid_text(super->disk_uuid, wanted);
	if (is_zero(given, 16)) {
		if (!fs->found) {
			complain(
				"cannot recover %s to %s: the journal belongs to disk %s, and %s "
				"has no readable UUID; give it with --disk-uuid, or use --any-disk",
				file, target, wanted, target);
			return -1;
		}
		uuid = fs->uuid;
	}
	if (!memcmp(uuid, super->disk_uuid, 16))
		return 0;
	complain("cannot recover %s to %s: the journal belongs to disk %s, and this is %s; give "
		 "the right disk (or --any-disk, if it is a copy with a new UUID)",
		 file, target, wanted, uuid_text(uuid, has));
	return -1;
}

/* --- Progress: after two seconds, twice a second, if somebody sees it ------ */

struct progress {
	struct nvju_disk *disk;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool running, ended, shown;
};

static void *show_progress(void *argument)
{
	struct progress *progress = argument;
	struct timespec until;
	long pause_ms = 2000;

	pthread_mutex_lock(&progress->lock);
	while (!progress->ended) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += pause_ms / 1000;
		until.tv_nsec += pause_ms % 1000 * 1000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&progress->changed, &progress->lock, &until);
		if (progress->ended)
			break;
		fprintf(stderr, "\rnvj: %" PRIu64 " blocks written ",
			nvju_disk_counts(progress->disk).writes);
		progress->shown = true;
		pause_ms = 500;
	}
	pthread_mutex_unlock(&progress->lock);
	return NULL;
}

static void progress_begin(struct progress *progress, struct nvju_disk *disk)
{
	*progress = (struct progress){
		.disk = disk,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};
	if (isatty(STDERR_FILENO))
		progress->running =
			!pthread_create(&progress->thread, NULL, show_progress, progress);
}

static void progress_end(struct progress *progress)
{
	if (!progress->running)
		return;
	pthread_mutex_lock(&progress->lock);
	progress->ended = true;
	pthread_cond_signal(&progress->changed);
	pthread_mutex_unlock(&progress->lock);
	pthread_join(progress->thread, NULL);
	if (progress->shown)
		fputc('\n', stderr);
}

/* --- The command ----------------------------------------------------------- */

/* What to recover, as the command line has it. */
struct request {
	const char *file, *target;
	uint64_t offset;
	bool json;
};

static void print_result(const struct request *request, int error, const char *disk_failure,
			 int exit_code, const struct nvj_report *report, const struct fs_disk *fs,
			 bool unmarked)
{
	const char *file = request->file, *target = request->target;
	char text[NVJU_JOURNAL_BYTES];

	if (request->json) {
		struct json json = {.to = stdout};

		json_begin(&json, NULL, '{');
		json_text(&json, "file", file);
		json_text(&json, "target", target);
		json_bool(&json, "recovered", !error);
		json_bool(&json, "ext4_unmarked", unmarked && !fs->jfs);
		json_bool(&json, "jfs_unmarked", unmarked && fs->jfs);
		json_number(&json, "exit_code", (uint64_t)exit_code);
		if (error)
			json_text(&json, "error", nvj_strerror(error));
		else
			json_null(&json, "error");
		report_json(report, &json);
		json_end(&json, '}');
	} else {
		findings_text(report, error ? stderr : stdout);
		if (!error && report->clean)
			printf("%s: clean, nothing to recover\n", file);
		else if (!error)
			printf("%s: recovered %" PRIu64 " transactions: %" PRIu64 " records, "
			       "%" PRIu64 " blocks written to %s\n",
			       file, report->transactions, report->records, report->blocks, target);
		if (unmarked)
			printf("%s: its %s no longer needs the journal: mount it, with %s, or "
			       "check "
			       "it with %s\n",
			       target, fs_name(fs), fs->jfs ? "jfs or jfsnvj" : "ext4 or ext4nvj",
			       fs->jfs ? "fsck.jfs" : "e2fsck");
	}
	if (error == NVJ_EUCLEAN && report->blocks)
		complain("cannot recover %s: its memory failed after it was checked: %" PRIu64
			 " blocks were written to %s, the others were not. The journal is "
			 "unchanged: restore the region from a copy, and run it again",
			 file, report->blocks, target);
	else if (error == NVJ_EUCLEAN && report->findings)
		complain("cannot recover %s: it is damaged; nothing was written to %s. Restore the "
			 "region from a copy; or discard what is not at home: nvj format %s "
			 "--force, then check the disk's file system",
			 file, target, nvju_journal(file, request->offset, text));
	else if (error == NVJ_EIO)
		complain("cannot recover %s to %s: %s; the journal keeps everything: run it again "
			 "when the disk works, and is large enough",
			 file, target, *disk_failure ? disk_failure : "the disk failed");
	else if (error)
		complain_of_journal(file, request->offset, error);
}

/*
 * A disk that ext4nvj or jfsnvj has mounted is marked until all is home: without the mark
 * a journal with something in it is an old copy, and would undo what came after.
 */
static int waits_for_journal(const char *file, const char *target, const struct fs_disk *fs,
			     const struct nvj_region *region)
{
	struct nvju_platform platform;
	struct nvj_report report = {0};

	if (!fs->found || fs->marked)
		return 0;
	nvju_platform_init(&platform, NULL);
	/* Recovery reports damage. */
	if (nvj_check(region, &platform.platform, &report) || report.clean)
		return 0;
	complain("cannot recover %s to %s: its %s is not marked as waiting for a journal, so what "
		 "is in this one is older than the disk; --any-disk, if you know better",
		 file, target, fs_name(fs));
	return -1;
}

/* The region is open and its superblock read. */
static int recover(const struct request *request, struct nvju_region *region,
		   struct nvju_disk *disk, const struct fs_disk *fs)
{
	struct nvj_report report = {0};
	struct nvju_platform platform;
	struct progress progress;
	bool unmarked = false;
	int error, result;

	nvju_platform_init(&platform, disk);
	progress_begin(&progress, disk);
	error = nvj_recover_with(nvju_region(region), &platform.platform, nvju_run, &report);
	progress_end(&progress);
	/* A damaged copy does not prevent recovery: that is no failure. */
	result = error == 0         ? EXIT_SOUND
		 : error == NVJ_EIO ? EXIT_DAMAGED
				    : verdict(error, &report);
	if (!error && fs_unmark(request->target, disk, fs, &unmarked))
		result = EXIT_DAMAGED;
	print_result(request, error, nvju_disk_failure(disk), result, &report, fs, unmarked);
	return result;
}

int command_recover(int count, char **words)
{
	uint64_t offset = 0;
	uint8_t uuid[16] = {0};
	bool json_wanted = false, any = false, allow_volatile = false;
	const char *file, *target = NULL;
	const struct argument arguments[] = {
		{"--json", ARGUMENT_FLAG, &json_wanted, NULL},
		{"--offset", ARGUMENT_SIZE, &offset, NULL},
		{"--target", ARGUMENT_TEXT, &target, NULL},
		{"--disk-uuid", ARGUMENT_UUID, uuid, NULL},
		{"--any-disk", ARGUMENT_FLAG, &any, NULL},
		{"--allow-volatile", ARGUMENT_FLAG, &allow_volatile, NULL},
		{0},
	};
	struct nvju_region *region = NULL;
	struct nvju_disk *disk = NULL;
	struct nvj_disk_super super;
	struct fs_disk fs;
	int error, result;

	result = read_arguments("recover", count, words, arguments, &file);
	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	if (!target) {
		complain("recover: --target DISK is required; see nvj recover --help");
		return EXIT_UNUSABLE;
	}
	result = EXIT_UNUSABLE;
	if (nvju_same_file(file, target)) {
		complain("cannot recover %s to %s: this is the journal itself, and recovery would "
			 "overwrite it; give the disk of the blocks",
			 file, target);
		return result;
	}
	if (open_journal_region(&region, file, offset, allow_volatile ? NVJ_ALLOW_VOLATILE : 0) ||
	    nvju_disk_open(&disk, target, 0)) {
		complain("%s", nvju_error());
	} else if ((error = nvj_read_super(nvju_region(region), &super)) != 0) {
		complain_of_journal(file, offset, error);
	} else if (!fs_look(&fs, disk) &&
		   (any || (!right_disk(file, &super, &fs, target, uuid) &&
			    !waits_for_journal(file, target, &fs, nvju_region(region)))) &&
		   !fs_fits(&fs, file, offset, target, nvju_region(region), &super, any)) {
		result = recover(&(struct request){file, target, offset, json_wanted}, region, disk,
				 &fs);
	}
	nvju_disk_close(disk);
	nvju_region_close(region);
	return result;
}
