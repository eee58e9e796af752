/* SPDX-License-Identifier: Apache-2.0 */
/* nvj dump: prints each record that is not at home, in the order of the
 * rings. */
#include <inttypes.h>

#include "nvj.h"

struct dump {
	bool json, one_partition, one_transaction;
	uint64_t partition, transaction;
	uint64_t shown;
	const struct nvj_disk_super *super;
};

static const char *kind_name(unsigned kind)
{
	switch (kind) {
	case NVJ_UPDATE:
		return "update";
	case NVJ_DATA:
		return "data";
	case NVJ_REVOKE:
		return "revoke";
	}
	return "unknown";
}

static int show(void *context, uint32_t partition, const struct nvj_disk_record *record,
		const void *lines, bool committed)
{
	struct dump *dump = context;
	const struct nvj_disk_super *super = dump->super;
	uint64_t offset = super->partition_offset +
			  (partition * super->ring_lines + record->position % super->ring_lines) *
				  NVJ_LINE_BYTES;

	(void)lines;
	if (dump->one_partition && partition != dump->partition)
		return 0;
	if (dump->one_transaction && record->tid != dump->transaction)
		return 0;
	if (dump->json) {
		struct json json = {.to = stdout, .one_line = true};

		json_begin(&json, NULL, '{');
		json_number(&json, "partition", partition);
		json_number(&json, "position_lines", record->position);
		json_number(&json, "offset_bytes", offset);
		json_number(&json, "transaction", record->tid);
		json_text(&json, "kind", kind_name(record->kind));
		json_number(&json, "block", record->block);
		json_number(&json, "sequence", record->sequence);
		json_hex(&json, "mask", record->mask);
		json_hex(&json, "zeros", record->zeros);
		json_number(&json, "lines", record->lines);
		json_bool(&json, "committed", committed);
		json_end(&json, '}');
	} else {
		if (!dump->shown)
			printf("%-9s %12s %14s %12s %-6s %12s %5s %s\n", "partition", "position",
			       "byte", "transaction", "kind", "block", "lines", "mask");
		printf("%-9u %12" PRIu64 " %14" PRIu64 " %12" PRIu64 " %-6s %12" PRIu64
		       " %5u %016" PRIx64 "%s\n",
		       partition, record->position, offset, record->tid, kind_name(record->kind),
		       record->block, record->lines, record->mask,
		       committed ? "" : " not committed");
	}
	dump->shown++;
	return ferror(stdout) ? 1 : 0;
}

int command_dump(int count, char **words)
{
	struct dump dump = {0};
	uint64_t offset = 0;
	const struct argument arguments[] = {
		{"--json", ARGUMENT_FLAG, &dump.json, NULL},
		{"--offset", ARGUMENT_SIZE, &offset, NULL},
		{"--partition", ARGUMENT_COUNT, &dump.partition, &dump.one_partition},
		{"--transaction", ARGUMENT_COUNT, &dump.transaction, &dump.one_transaction},
		{0},
	};
	struct nvj_report report = {0};
	const char *file;
	struct look look;
	int error, result;

	result = read_arguments("dump", count, words, arguments, &file);
	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	result = look_at_journal(&look, file, offset, false);
	if (result)
		return result;
	if (dump.one_partition && dump.partition >= look.super.partitions) {
		complain("dump: %s has partitions 0 to %u", file, look.super.partitions - 1);
		look_away(&look);
		return EXIT_UNUSABLE;
	}
	dump.super = &look.super;
	nvj_walk(nvju_region(look.region), &look.platform.platform, show, &dump);
	/* The walk shows the valid records; the check finds the damaged places. */
	error = nvj_check(nvju_region(look.region), &look.platform.platform, &report);
	result = verdict(error, &report);
	findings_text(&report, stderr);
	if (error && !report.findings)
		complain_of_journal(file, offset, error);
	if (!dump.json && !error && !dump.shown)
		printf("no records: %s\n", dump.one_partition || dump.one_transaction
						   ? "none of these"
						   : "all is at home");
	look_away(&look);
	return result;
}
