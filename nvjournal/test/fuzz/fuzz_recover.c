/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer: nvj_recover on arbitrary regions. It ends, stays in the region, and
 * what it called right once it calls right again, and clean, unless CRCs were
 * forged.
 */
#include "edits.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
	struct nvj_report report, again;
	struct edited e;
	size_t events;
	int r;

	if (!edits_begin(&e, input, bytes))
		return 0;
	memset(&report, 0, sizeof(report));
	r = nvj_recover(&e.world.nvj_region, &e.world.platform, &report);
	events = e.world.trace.count;
	if (r == NVJ_EUCLEAN && (events != 0 || report.findings == 0))
		abort();
	if (r == 0 && !e.forged) {
		memset(&again, 0, sizeof(again));
		r = nvj_recover(&e.world.nvj_region, &e.world.platform, &again);
		if (r != 0 || !again.clean || again.committed_tid != report.committed_tid)
			abort();
	}
	edits_end(&e);
	return 0;
}
