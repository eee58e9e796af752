// SPDX-License-Identifier: GPL-2.0
/* The counters of a journal, collected from its parts. */
#include "journal.h"

void nvjk_journal_statistics(journal_t *journal, struct nvjk_statistics *statistics)
{
	struct nvjk_journal *j = nvjk_of(journal);

	nvj_statistics(j->nvj, &statistics->engine);
	nvjk_read_holds(&j->one_lock_holds, j->nvj, statistics);
	nvjk_disk_counts(j->disk, &statistics->disk);
	nvjk_region_counts(j->region, &statistics->region);
	statistics->pinned_buffers = nvjk_pins_count(j);
	statistics->pinned_all_mounts = nvjk_bound_count();
	statistics->max_pinned_buffers = nvjk_bound();
	statistics->images_bytes = nvj_images(j->nvj) * NVJ_BLOCK_BYTES;
	statistics->data_flushes = atomic64_read(&j->data_flushes);
	statistics->data_inodes = atomic64_read(&j->data_inodes_done);
}
