// SPDX-License-Identifier: GPL-2.0
/*
 * Free tlocks, JFS's locks of pages. JFS has a list of all free ones, under jfsTxnLock. Here
 * each processor keeps some, so that a transaction mostly takes and frees its locks without
 * asking for jfsTxnLock. They count as in use.
 *
 * All processors together keep at most an eighth of the tlocks. JFS has limits for those in
 * use: from seven tenths on (jfs_tlocks_low), each freed one goes to the list, until there
 * are less than four tenths. Only then processors take more than one at once.
 *
 * A processor that is taken offline keeps what it has.
 */
#include <linux/percpu.h>

#include "journal.h"

#define MOST 64u

struct kept {
	unsigned int count;
	lid_t lids[MOST];
};

static DEFINE_PER_CPU(struct kept, kept);
static unsigned int most; /* for each processor; 0 or even */

void jfsnvj_tlocks_init(unsigned int tlocks)
{
	most = min(MOST, tlocks / 8 / num_possible_cpus()) & ~1u;
}

/* Keeps up to count more of lids, the last ones, and returns how many are left. */
static unsigned int keep(const lid_t *lids, unsigned int count)
{
	struct kept *mine = get_cpu_ptr(&kept);

	while (count && mine->count < most)
		mine->lids[mine->count++] = lids[--count];
	put_cpu_ptr(&kept);
	return count;
}

lid_t jfsnvj_take_tlock(void)
{
	struct kept *mine = get_cpu_ptr(&kept);
	lid_t lids[MOST / 2 + 1];
	unsigned int count;
	lid_t lid = 0;

	if (mine->count)
		lid = mine->lids[--mine->count];
	put_cpu_ptr(&kept);
	if (lid)
		return lid;

	count = jfsnvj_take_tlocks(lids, most / 2 + 1);
	/* This thread may be on another processor now, which has enough. */
	count = keep(lids + 1, count - 1);
	if (count)
		jfsnvj_return_tlocks(lids + 1, count);
	return lids[0];
}

void jfsnvj_free_tlock(lid_t lid)
{
	lid_t lids[MOST / 2 + 1];
	unsigned int count = 0;
	struct kept *mine;

	jfsnvj_clear_tlock(lid);
	lids[count++] = lid;
	mine = get_cpu_ptr(&kept);
	if (mine->count < most && !READ_ONCE(jfs_tlocks_low)) {
		mine->lids[mine->count++] = lid;
		count = 0;
	} else {
		while (count <= most / 2 && mine->count)
			lids[count++] = mine->lids[--mine->count];
	}
	put_cpu_ptr(&kept);
	if (count)
		jfsnvj_return_tlocks(lids, count);
}
