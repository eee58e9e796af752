/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: nvj_check, nvj_walk and nvj_read_super on arbitrary regions. They
 * change nothing; what nvj_check calls sound nvj_recover does, record by record.
 */
#include "edits.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

struct seen {
	uint64_t records, committed;
	uint8_t sum;
};

static int visit(void *context, uint32_t partition, const struct nvj_disk_record *record,
		 const void *lines, bool committed)
{
	struct seen *seen = context;

	/* All that is promised to be there is there to be read. */
	for (size_t i = 0; i + 64 < record->lines * 64u; i++)
		seen->sum ^= ((const uint8_t *)lines)[i];
	if (partition >= NVJ_MAX_PARTITIONS || record->lines < 1 || record->lines > 65)
		abort();
	seen->records++;
	seen->committed += committed && record->kind != NVJ_REVOKE;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
	struct nvj_report would, did;
	struct nvj_disk_super super;
	struct seen seen = {0};
	struct edited e;
	int checked, walked, r;

	if (!edits_begin(&e, input, bytes))
		return 0;
	nvj_read_super(&e.world.nvj_region, &super);
	memset(&would, 0, sizeof(would));
	checked = nvj_check(&e.world.nvj_region, &e.world.platform, &would);
	walked = nvj_walk(&e.world.nvj_region, &e.world.platform, visit, &seen);
	if (e.world.trace.count != 0 || e.world.reads != 0)
		abort();
	if (checked == NVJ_EUCLEAN && would.findings == 0)
		abort();
	if (checked == 0) {
		if (walked != 0 || seen.committed != would.records + would.revoked)
			abort();
		memset(&did, 0, sizeof(did));
		r = nvj_recover(&e.world.nvj_region, &e.world.platform, &did);
		/* A record may name a block that the disk does not have. */
		if (r == NVJ_EUCLEAN || (r == 0 && (did.records != would.records ||
						    did.committed_tid != would.committed_tid)))
			abort();
	}
	edits_end(&e);
	return 0;
}
