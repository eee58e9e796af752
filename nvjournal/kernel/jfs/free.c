// SPDX-License-Identifier: GPL-2.0
/*
 * Free tblocks and tlocks: JFS's transactions and their locks of pages. JFS has a list of
 * all free ones of each kind, under jfsTxnLock. Here each processor keeps some, so that a
 * transaction mostly begins, locks pages and ends without asking for jfsTxnLock. For the
 * list, those that are kept are in use.
 *
 * All processors together keep at most an eighth. If few are left in the list, each one that
 * gets free goes there, and processors take no more than they need. So whoever waits for a
 * free one, because the list is empty, gets the next one.
 *
 * A processor that is taken offline keeps what it has.
 */
#include "journal.h"

#define MOST 64u

struct kept {
	unsigned int count;
	u16 numbers[MOST];
};

static DEFINE_PER_CPU(struct kept[JFSNVJ_KINDS], kept);
static unsigned int most[JFSNVJ_KINDS] __read_mostly; /* for each processor; even */
static bool few[JFSNVJ_KINDS] __read_mostly;

void jfsnvj_keeps_free(enum jfsnvj_kind kind, unsigned int all)
{
	most[kind] = min(MOST, all / 8 / num_possible_cpus()) & ~1u;
}

void jfsnvj_set_few(enum jfsnvj_kind kind, bool are_few)
{
	if (few[kind] != are_few)
		WRITE_ONCE(few[kind], are_few);
}

bool jfsnvj_are_few(enum jfsnvj_kind kind)
{
	return READ_ONCE(few[kind]);
}

u16 jfsnvj_take_kept(enum jfsnvj_kind kind)
{
	struct kept *mine = &get_cpu_var(kept)[kind];
	u16 number = mine->count ? mine->numbers[--mine->count] : 0;

	put_cpu_var(kept);
	return number;
}

void jfsnvj_keep_more(enum jfsnvj_kind kind)
{
	u16 numbers[MOST / 2];
	unsigned int count = jfsnvj_take_from_list(kind, numbers, most[kind] / 2);
	struct kept *mine = &get_cpu_var(kept)[kind];

	/* This thread may be on another processor now, which has enough. */
	while (count && mine->count < most[kind])
		mine->numbers[mine->count++] = numbers[--count];
	put_cpu_var(kept);
	if (count)
		jfsnvj_return_to_list(kind, numbers, count);
}

void jfsnvj_free_number(enum jfsnvj_kind kind, u16 number)
{
	u16 numbers[MOST / 2 + 1];
	unsigned int count = 0;
	struct kept *mine = &get_cpu_var(kept)[kind];

	if (mine->count < most[kind] && !jfsnvj_are_few(kind)) {
		mine->numbers[mine->count++] = number;
	} else {
		numbers[count++] = number;
		while (count <= most[kind] / 2 && mine->count)
			numbers[count++] = mine->numbers[--mine->count];
	}
	put_cpu_var(kept);
	if (count)
		jfsnvj_return_to_list(kind, numbers, count);
}
