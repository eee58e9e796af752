/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the findings of a check or a recovery, as text and as JSON. */
#include <inttypes.h>

#include "../user/error.h"
#include "nvj.h"

static unsigned kept(const struct nvj_report *report)
{
	return report->findings < NVJ_MAX_FINDINGS ? report->findings : NVJ_MAX_FINDINGS;
}

/* A journal without its superblock or tail or with invalid sizes cannot be recovered. */
static bool unusable(const struct nvj_report *report)
{
	unsigned n;

	for (n = 0; n < kept(report); n++)
		if (report->finding[n].kind == NVJ_FOUND_SUPERS ||
		    report->finding[n].kind == NVJ_FOUND_TAILS ||
		    report->finding[n].kind == NVJ_FOUND_LAYOUT)
			return true;
	return false;
}

int verdict(int error, const struct nvj_report *report)
{
	if (error && error != NVJ_EUCLEAN)
		return EXIT_UNUSABLE;
	if (error && (!report->findings || unusable(report)))
		return EXIT_UNUSABLE;
	return error || report->findings ? EXIT_DAMAGED : EXIT_SOUND;
}

const char *verdict_text(int exit_code)
{
	switch (exit_code) {
	case EXIT_SOUND:
		return "sound";
	case EXIT_DAMAGED:
		return "damaged";
	default:
		return "unusable";
	}
}

void complain_of_journal(const char *file, uint64_t offset, int error)
{
	char text[NVJU_JOURNAL_BYTES];
	const char *journal = nvju_journal(file, offset, text);

	switch (error) {
	case NVJ_ENODATA:
		complain("%s has no journal at byte %" PRIu64 "; make one: nvj format %s (or "
			 "give the --offset where it begins)",
			 file, offset, journal);
		break;
	case NVJ_EFORMAT:
		complain("%s holds a journal of a later format than this nvj knows (%u); use the "
			 "nvj that made it",
			 file, NVJ_FORMAT_VERSION);
		break;
	case NVJ_EUCLEAN:
		complain("%s: the superblock is damaged, in both copies, or does not fit the "
			 "region; nothing of the journal can be read. If the file was cut short, "
			 "restore its size; otherwise make a new journal (nvj format %s "
			 "--force), and lose what was not at home",
			 file, journal);
		break;
	default:
		complain("cannot read the journal in %s: %s", file, nvj_strerror(error));
		break;
	}
}

void findings_text(const struct nvj_report *report, FILE *to)
{
	char text[200];
	unsigned n;

	for (n = 0; n < kept(report); n++)
		fprintf(to, "damage: %s\n",
			nvju_finding_text(&report->finding[n], text, sizeof(text)));
	if (report->findings > NVJ_MAX_FINDINGS)
		fprintf(to, "damage: and %u more\n", report->findings - NVJ_MAX_FINDINGS);
}

void report_text(const struct nvj_report *report, FILE *to)
{
	fprintf(to, "at home             up to transaction %" PRIu64 "\n", report->tail_tid);
	fprintf(to, "committed           up to transaction %" PRIu64 "\n", report->committed_tid);
	fprintf(to, "committed, not home %" PRIu64 " transactions, %" PRIu64 " records\n",
		report->transactions, report->records);
	fprintf(to, "passed over         %" PRIu64 " records revoked, %" PRIu64 " not committed\n",
		report->revoked, report->uncommitted);
	fprintf(to, "journal read        %" PRIu64 " bytes\n", report->journal_bytes);
}

static const char *finding_name(enum nvj_finding_kind kind)
{
	switch (kind) {
	case NVJ_FOUND_SUPER:
		return "superblock_copy";
	case NVJ_FOUND_SUPERS:
		return "superblock";
	case NVJ_FOUND_TAIL:
		return "tail_copy";
	case NVJ_FOUND_TAILS:
		return "tail";
	case NVJ_FOUND_COMMIT:
		return "commit";
	case NVJ_FOUND_RECORD:
		return "record";
	case NVJ_FOUND_LAYOUT:
		return "layout";
	}
	return "unknown";
}

void report_json(const struct nvj_report *report, struct json *json)
{
	unsigned n;

	json_number(json, "tail_transaction", report->tail_tid);
	json_number(json, "committed_transaction", report->committed_tid);
	json_number(json, "transactions_not_home", report->transactions);
	json_number(json, "records_to_replay", report->records);
	json_number(json, "records_revoked", report->revoked);
	json_number(json, "records_uncommitted", report->uncommitted);
	json_number(json, "blocks_written", report->blocks);
	json_number(json, "journal_read_bytes", report->journal_bytes);
	json_bool(json, "clean", report->clean);
	json_number(json, "findings_count", report->findings);
	json_begin(json, "findings", '[');
	for (n = 0; n < kept(report); n++) {
		const struct nvj_finding *finding = &report->finding[n];
		char text[200];

		json_begin(json, NULL, '{');
		json_text(json, "kind", finding_name(finding->kind));
		json_number(json, "offset_bytes", finding->offset);
		json_bool(json, "unreadable", finding->unreadable);
		if (finding->kind == NVJ_FOUND_RECORD) {
			json_number(json, "partition", finding->partition);
			json_number(json, "position_lines", finding->position);
		}
		if (finding->kind == NVJ_FOUND_COMMIT)
			json_number(json, "transaction", finding->position);
		json_text(json, "text", nvju_finding_text(finding, text, sizeof(text)));
		json_end(json, '}');
	}
	json_end(json, ']');
}
