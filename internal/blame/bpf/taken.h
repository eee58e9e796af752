/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Places: most lookups in a hash map are avoided by an array in front of it. A key
 * has one place in the array. The place belongs to the first key that takes it;
 * other keys of the same place are in the hash map. A key is never in both. The arrays
 * are global variables, because to find a place in one takes a third of the instructions
 * that an array map takes. The map `taken` has which key each place belongs to.
 */
#ifndef DAYBOOK_BLAME_TAKEN_H
#define DAYBOOK_BLAME_TAKEN_H

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#define TASK_PLACES 4096 /* a power of 2 */
#define JOURNAL_PLACES_LOG2 7

/*
 * place -> the key that has it: if two processors take a place at the same time, the
 * one that inserts the entry gets it. The places of journals have the highest bit set.
 */
#define OF_JOURNAL (1U << 31)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASK_PLACES + (1 << JOURNAL_PLACES_LOG2));
	__type(key, __u32);
	__type(value, __u32);
} taken SEC(".maps");

/* Say that the hash maps `tasks` and `journals` have entries. */
int any_task = 0;
int any_journal = 0;

/* Returns whether the place was free. */
static __always_inline bool take_place(__u32 at, __u32 by)
{
	return bpf_map_update_elem(&taken, &at, &by, BPF_NOEXIST) == 0;
}

#endif
