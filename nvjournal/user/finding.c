/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for the findings of check and recovery. */
#include <inttypes.h>
#include <stdio.h>

#include "nvjournal_user.h"

char *nvju_finding_text(const struct nvj_finding *finding, char *text, size_t bytes)
{
	const char *what = finding->unreadable ? "in memory that cannot be read" : "damaged";

	switch (finding->kind) {
	case NVJ_FOUND_SUPER:
		snprintf(text, bytes,
			 "the copy of the superblock at byte %" PRIu64
			 " is %s; the other one is used",
			 finding->offset, what);
		break;
	case NVJ_FOUND_SUPERS:
		snprintf(text, bytes, "both copies of the superblock (byte %" PRIu64 ") are %s",
			 finding->offset, what);
		break;
	case NVJ_FOUND_TAIL:
		snprintf(text, bytes,
			 "the copy of the tail at byte %" PRIu64 " is %s; the other one is used",
			 finding->offset, what);
		break;
	case NVJ_FOUND_TAILS:
		snprintf(text, bytes, "both copies of the tail (byte %" PRIu64 ") are %s",
			 finding->offset, what);
		break;
	case NVJ_FOUND_COMMIT:
		snprintf(text, bytes,
			 "the commit record of transaction %" PRIu64 " at byte %" PRIu64 " is %s",
			 finding->position, finding->offset, what);
		break;
	case NVJ_FOUND_RECORD:
		snprintf(text, bytes,
			 "the record at byte %" PRIu64 " (partition %u, position %" PRIu64
			 ") is %s",
			 finding->offset, finding->partition, finding->position, what);
		break;
	case NVJ_FOUND_LAYOUT:
		snprintf(text, bytes,
			 "the superblock's sizes contradict each other or the region (byte %" PRIu64
			 ")",
			 finding->offset);
		break;
	default:
		snprintf(text, bytes, "damage of kind %d at byte %" PRIu64, (int)finding->kind,
			 finding->offset);
		break;
	}
	return text;
}
