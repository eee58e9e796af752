/* SPDX-License-Identifier: Apache-2.0 */
/* The list of engines, and what they have in common. */
#include "engine.h"

#include <string.h>

/* Added to each byte of an image where zeros are to be none. */
#define NOT_ZERO 0x5a

uint8_t *worker_change(struct worker *w, const struct update *u)
{
	uint8_t *image = w->images + (size_t)u->index * NVJ_BLOCK_BYTES;
	const uint8_t *line = u->lines;

	for (uint64_t left = u->mask; left; left &= left - 1) {
		uint8_t *to = image + NVJ_LINE_BYTES * (unsigned)__builtin_ctzll(left);

		memcpy(to, line, NVJ_LINE_BYTES);
		if (w->engine->without_zeros)
			for (unsigned n = 0; n < NVJ_LINE_BYTES; n++)
				to[n] ^= NOT_ZERO;
		line += NVJ_LINE_BYTES;
	}
	return image;
}

int commit_nothing(struct engine *e, struct worker *w)
{
	(void)e;
	(void)w;
	return 0;
}

#define NVJOURNAL                                                                                  \
	.open = nvjournal_open, .commit = nvjournal_commit, .close = nvjournal_close, .ours = true

struct engine engines[] = {
	{.name = "nvjournal",
	 .partitions = 1,
	 .apply = nvjournal_apply,
	 .compared = true,
	 NVJOURNAL},
	{.name = "nvjournal",
	 .partitions = 8,
	 .apply = nvjournal_apply,
	 .compared = true,
	 NVJOURNAL},
	{.name = "nvjournal-blocks",
	 .partitions = 1,
	 .apply = nvjournal_apply_blocks,
	 .without_zeros = true,
	 NVJOURNAL},
	{.name = "one-lock",
	 .compared = true,
	 .partitions = 1,
	 .open = one_lock_open,
	 .apply = one_lock_apply,
	 .commit = one_lock_commit,
	 .close = one_lock_close,
	 .ours = true},
	{.name = "one-lock-one-fence",
	 .compared = true,
	 .partitions = 1,
	 .option = 1,
	 .open = one_lock_open,
	 .apply = one_lock_apply,
	 .commit = one_lock_commit,
	 .close = one_lock_close,
	 .ours = true},
	{.name = "jbd2-like",
	 .compared = true,
	 .partitions = 1,
	 .open = block_journal_open,
	 .apply = block_journal_apply,
	 .commit = block_journal_commit,
	 .counts = block_journal_counts,
	 .close = block_journal_close},
#ifdef BENCH_PMEMOBJ
	{.name = "libpmemobj",
	 .compared = true,
	 .partitions = 1,
	 .open = pmemobj_engine_open,
	 .apply = pmemobj_engine_apply,
	 .commit = commit_nothing,
	 .close = pmemobj_engine_close,
	 .committed = true},
#endif
#ifdef BENCH_PMEMLOG
	{.name = "libpmemlog",
	 .partitions = 1,
	 .open = pmemlog_engine_open,
	 .apply = pmemlog_engine_apply,
	 .commit = commit_nothing,
	 .close = pmemlog_engine_close,
	 .committed = true},
#endif
	{.name = NULL},
};
