/* SPDX-License-Identifier: Apache-2.0 */
/* nvj check: reads everything that recovery would read, and changes nothing. */
#include "../user/error.h"
#include "nvj.h"

int command_check(int count, char **words)
{
	uint64_t offset = 0;
	bool json_wanted = false;
	const struct argument arguments[] = {
		{"--json", ARGUMENT_FLAG, &json_wanted, NULL},
		{"--offset", ARGUMENT_SIZE, &offset, NULL},
		{0},
	};
	struct nvj_report report = {0};
	char text[NVJU_JOURNAL_BYTES];
	const char *file;
	struct look look;
	int error, result;

	result = read_arguments("check", count, words, arguments, &file);
	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	result = look_at(&look, file, offset, false);
	if (result)
		return result;
	error = nvj_check(nvju_region(look.region), &look.platform.platform, &report);
	result = look.super_error ? EXIT_UNUSABLE : verdict(error, &report);
	if (json_wanted) {
		struct json json = {.to = stdout};

		json_begin(&json, NULL, '{');
		json_text(&json, "file", file);
		json_text(&json, "verdict", verdict_text(result));
		json_number(&json, "exit_code", (uint64_t)result);
		if (error)
			json_text(&json, "error", nvj_strerror(error));
		else
			json_null(&json, "error");
		report_json(&report, &json);
		json_end(&json, '}');
	} else if (look.super_error || (error && !report.findings)) {
		complain_of_journal(file, offset, error);
	} else {
		if (result != EXIT_UNUSABLE) /* else nothing is known of its transactions */
			report_text(&report, stdout);
		findings_text(&report, stdout);
		printf("%s: %s%s\n", file, verdict_text(result),
		       result == EXIT_DAMAGED && !error ? ", but recovery does not need that part"
		       : result != EXIT_SOUND           ? ""
		       : report.clean                   ? ", clean: nothing to recover"
							: ", to be recovered");
	}
	if (!look.super_error && result == EXIT_DAMAGED && error)
		complain("%s is damaged in committed data: recovery will write nothing. "
			 "Restore the region from a copy; or discard what is not at home: nvj "
			 "format %s --force, then check the disk's file system",
			 file, nvju_journal(file, offset, text));
	look_away(&look);
	return result;
}
