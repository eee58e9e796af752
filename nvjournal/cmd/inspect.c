/* SPDX-License-Identifier: Apache-2.0 */
/* nvj inspect: prints the properties of a journal, the file system it belongs to, its
 * pending transactions, and the use of its rings. */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvj.h"

/* The bounds of a ring that recovery would read, from the commit records of tail and last
 * commit. */
struct ring {
	uint64_t low, high;
	bool known;
};

/* The file system of a journal. */
struct owner {
	bool known;
	const char *disk;
	char by_uuid[64];
	struct fs_disk fs;
};

/*
 * Looks at the disk that the user gave, or at that with the journal's UUID, as udev names it.
 * Returns 0, or -1 if the given one cannot be read or has no file system, after a message.
 */
static int find_owner(struct owner *owner, const struct nvj_disk_super *super, const char *target)
{
	struct nvju_disk *disk = NULL;
	char text[37];
	int error = 0;

	memset(owner, 0, sizeof(*owner));
	owner->disk = target;
	if (!target) {
		snprintf(owner->by_uuid, sizeof(owner->by_uuid), "/dev/disk/by-uuid/%s",
			 uuid_text(super->disk_uuid, text));
		owner->disk = owner->by_uuid;
		/* Who may not read the disk does not learn more. */
		if (is_zero(super->disk_uuid, 16) || access(owner->disk, R_OK))
			return 0;
	}
	if (nvju_disk_open(&disk, owner->disk, NVJU_DISK_READ_ONLY)) {
		complain("%s", nvju_error());
		error = -1;
	} else {
		error = fs_look(&owner->fs, disk);
	}
	nvju_disk_close(disk);
	owner->known = !error && owner->fs.found;
	if (!error && target && !owner->known) {
		complain("cannot inspect the disk %s: it has no ext4 and no JFS", target);
		error = -1;
	}
	return target ? error : 0;
}

static bool waits_for(const struct owner *owner, const struct nvj_disk_super *super)
{
	return owner->fs.marked && !memcmp(owner->fs.journal_uuid, super->uuid, 16);
}

/*
 * Reads where a ring starts and ends from the commit record of a transaction. False: it
 * has another one, or cannot be read.
 */
static bool read_bounds(const struct look *look, uint64_t tid, unsigned partition,
			uint64_t bounds[2])
{
	const struct nvj_region *region = nvju_region(look->region);
	uint64_t bytes = (uint64_t)look->super.commit_lines * NVJ_LINE_BYTES;
	const uint8_t *at = (const uint8_t *)region->base + NVJ_COMMITS_OFFSET +
			    tid % look->super.commits * bytes;
	const size_t bounds_bytes = 2 * sizeof(*bounds);
	struct nvj_disk_commit commit;

	return !region->read(&commit, at, sizeof(commit)) && commit.tid == tid &&
	       commit.partitions == look->super.partitions &&
	       !region->read(bounds, at + sizeof(commit) + partition * bounds_bytes, bounds_bytes);
}

static struct ring ring_of(const struct look *look, const struct nvj_report *report, unsigned n)
{
	uint64_t tail[2], last[2];
	struct ring ring = {0};

	if (!read_bounds(look, report->tail_tid, n, tail) ||
	    !read_bounds(look, report->committed_tid, n, last))
		return ring;
	ring.low = tail[0];
	ring.high = last[1];
	ring.known = ring.high >= ring.low && ring.high - ring.low <= look->super.ring_lines;
	return ring;
}

static char *time_text(uint64_t unix_seconds, char *text, size_t bytes)
{
	time_t seconds = (time_t)unix_seconds;
	struct tm when;

	if (!gmtime_r(&seconds, &when) || !strftime(text, bytes, "%Y-%m-%dT%H:%M:%SZ", &when))
		snprintf(text, bytes, "%" PRIu64, unix_seconds);
	return text;
}

static void show_text(const struct look *look, const struct owner *owner, const char *file,
		      const struct nvj_report *report, int exit_code)
{
	const struct nvj_disk_super *super = &look->super;
	char text[64];
	unsigned n;

	printf("file                %s (%s)%s\n", file, nvju_region_how(look->region),
	       look->in_use ? ", in use: the numbers change" : "");
	printf("journal             %s, format %u\n", uuid_text(super->uuid, text), super->version);
	if (is_zero(super->disk_uuid, 16))
		printf("disk                any\n");
	else
		printf("disk                %s\n", uuid_text(super->disk_uuid, text));
	if (owner->known)
		printf("file system         %s on %s, %s\n", fs_name(&owner->fs), owner->disk,
		       waits_for(owner, super) ? "marked: it needs this journal"
		       : owner->fs.marked      ? "marked: it needs another journal"
					       : "not marked: it needs no journal");
	else
		printf("file system         not known; give --target DISK\n");
	printf("formatted           %s\n", time_text(super->formatted_unix, text, sizeof(text)));
	printf("size                %" PRIu64 " bytes\n", super->size_bytes);
	printf("partitions          %u of %" PRIu64 " bytes (%" PRIu64 " lines), by %s\n",
	       super->partitions, super->ring_lines * NVJ_LINE_BYTES, super->ring_lines,
	       placement_text(super));
	printf("commit ring         %u records of %u bytes\n", super->commits,
	       super->commit_lines * NVJ_LINE_BYTES);
	if (exit_code != EXIT_UNUSABLE) /* else nothing is known of its transactions */
		report_text(report, stdout);
	for (n = 0; n < super->partitions; n++) {
		struct ring ring = ring_of(look, report, n);

		if (!ring.known)
			printf("ring %-2u             not known\n", n);
		else
			printf("ring %-2u             %5.1f %% used, positions %" PRIu64
			       " to %" PRIu64 "\n",
			       n,
			       100.0 * (double)(ring.high - ring.low) / (double)super->ring_lines,
			       ring.low, ring.high);
	}
	findings_text(report, stdout);
	if (look->in_use) {
		printf("state               in use\n");
		return;
	}
	printf("state               %s%s\n", verdict_text(exit_code),
	       exit_code != EXIT_SOUND ? ""
	       : report->clean         ? ", clean"
				       : ", to be recovered");
}

static void show_json(const struct look *look, const struct owner *owner, const char *file,
		      const struct nvj_report *report, int exit_code)
{
	const struct nvj_disk_super *super = &look->super;
	struct json json = {.to = stdout};
	char text[64];
	unsigned n;

	json_begin(&json, NULL, '{');
	json_text(&json, "file", file);
	json_text(&json, "mapped_as", nvju_region_how(look->region));
	json_bool(&json, "in_use", look->in_use);
	json_text(&json, "verdict", look->in_use ? "in use" : verdict_text(exit_code));
	json_number(&json, "format_version", super->version);
	json_text(&json, "uuid", uuid_text(super->uuid, text));
	if (is_zero(super->disk_uuid, 16))
		json_null(&json, "disk_uuid");
	else
		json_text(&json, "disk_uuid", uuid_text(super->disk_uuid, text));
	if (owner->known) {
		json_begin(&json, "file_system", '{');
		json_text(&json, "type", owner->fs.jfs ? "jfs" : "ext4");
		json_text(&json, "disk", owner->disk);
		json_bool(&json, "marked", owner->fs.marked);
		json_bool(&json, "needs_this_journal", waits_for(owner, super));
		json_end(&json, '}');
	} else {
		json_null(&json, "file_system");
	}
	json_number(&json, "formatted_unix_seconds", super->formatted_unix);
	json_number(&json, "size_bytes", super->size_bytes);
	json_number(&json, "block_bytes", super->block_bytes);
	json_number(&json, "line_bytes", NVJ_LINE_BYTES);
	json_number(&json, "partitions", super->partitions);
	json_text(&json, "placement", placement_text(super));
	json_number(&json, "partition_offset_bytes", super->partition_offset);
	json_number(&json, "ring_lines", super->ring_lines);
	json_number(&json, "ring_bytes", super->ring_lines * NVJ_LINE_BYTES);
	json_number(&json, "commits", super->commits);
	json_number(&json, "commit_record_bytes", super->commit_lines * NVJ_LINE_BYTES);
	report_json(report, &json);
	json_begin(&json, "rings", '[');
	for (n = 0; n < super->partitions; n++) {
		struct ring ring = ring_of(look, report, n);

		json_begin(&json, NULL, '{');
		json_number(&json, "partition", n);
		if (ring.known) {
			json_number(&json, "low_lines", ring.low);
			json_number(&json, "high_lines", ring.high);
			json_number(&json, "used_lines", ring.high - ring.low);
		} else {
			json_null(&json, "used_lines");
		}
		json_end(&json, '}');
	}
	json_end(&json, ']');
	json_end(&json, '}');
}

int command_inspect(int count, char **words)
{
	uint64_t offset = 0;
	bool json_wanted = false;
	const char *target = NULL;
	const struct argument arguments[] = {
		{"--json", ARGUMENT_FLAG, &json_wanted, NULL},
		{"--target", ARGUMENT_TEXT, &target, NULL},
		{"--offset", ARGUMENT_SIZE, &offset, NULL},
		{0},
	};
	struct nvj_report report = {0};
	const char *file;
	struct owner owner;
	struct look look;
	int error, result;

	result = read_arguments("inspect", count, words, arguments, &file);
	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	result = look_at_journal(&look, file, offset, true);
	if (result)
		return result;
	if (find_owner(&owner, &look.super, target)) {
		look_away(&look);
		return EXIT_UNUSABLE;
	}
	error = nvj_check(nvju_region(look.region), &look.platform.platform, &report);
	result = verdict(error, &report);
	if (look.in_use) {
		/* The journal was read while it was written: apparent damage is
		 * only a change. */
		report.findings = 0;
		result = EXIT_SOUND;
	}
	if (json_wanted)
		show_json(&look, &owner, file, &report, result);
	else
		show_text(&look, &owner, file, &report, result);
	look_away(&look);
	return result;
}
