/* SPDX-License-Identifier: Apache-2.0 */
/* A new journal in the benchmark's region, with a disk in memory. */
#include "bench.h"

#include <string.h>

void journal_begin(struct bench *b, struct test_journal *t, const struct journal_options *o)
{
	struct nvj_format_options format = {.partitions = o->partitions,
					    .placement =
						    o->placement ? o->placement : NVJ_PLACE_BLOCK,
					    .commits = o->usual_commits ? 0 : NVJ_MAX_COMMITS};
	struct nvj_options options = {
		.checkpoint_percent = o->checkpoint_percent,
		.workers = o->workers,
	};
	struct nvj_report report;

	memset(t, 0, sizeof(*t));
	t->region = *b->region;
	if (o->region_bytes && o->region_bytes < t->region.size_bytes)
		t->region.size_bytes = o->region_bytes;
	nvju_uuid(format.uuid);
	must(nvju_disk_memory(&t->disk, o->disk_blocks, o->disk), "make a disk in memory");
	nvju_platform_init(&t->platform, t->disk);
	if (o->change)
		o->change(&t->platform.platform);
	must(nvj_format(&t->region, &format), "format the journal");
	must(nvj_open(&t->journal, &t->region, &t->platform.platform, &options, &report),
	     "open the journal");
}

void journal_end(struct test_journal *t)
{
	if (t->journal)
		nvj_abandon(t->journal);
	nvju_disk_close(t->disk);
	memset(t, 0, sizeof(*t));
}
