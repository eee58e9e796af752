/* SPDX-License-Identifier: Apache-2.0 */
/* Findings of check and recovery, in words. */
#include <inttypes.h>
#include <stdio.h>

#include "nvjournal_user.h"

char *nvju_finding_text(const struct nvj_finding *finding, char *text, size_t bytes)
{
	switch (finding->kind) {
	case NVJ_FOUND_SUPER:
		snprintf(text, bytes,
			 "the copy of the superblock at byte %" PRIu64
			 " is damaged; the other one is used",
			 finding->offset);
		break;
	case NVJ_FOUND_TAIL:
		snprintf(text, bytes,
			 "the copy of the tail at byte %" PRIu64
			 " is damaged; the other one is used",
			 finding->offset);
		break;
	case NVJ_FOUND_TAILS:
		snprintf(text, bytes, "both copies of the tail (byte %" PRIu64 ") are damaged",
			 finding->offset);
		break;
	case NVJ_FOUND_COMMIT:
		snprintf(text, bytes,
			 "the commit record of transaction %" PRIu64 " at byte %" PRIu64
			 " is damaged",
			 finding->position, finding->offset);
		break;
	case NVJ_FOUND_RECORD:
		snprintf(text, bytes,
			 "the record at byte %" PRIu64 " (partition %u, position %" PRIu64
			 ") is damaged",
			 finding->offset, finding->partition, finding->position);
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
