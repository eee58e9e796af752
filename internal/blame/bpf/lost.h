/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Losses. Each map has a maximum size. If a hash map is full, what is not counted is counted
 * here. An LRU map evicts the oldest entry.
 */
#ifndef DAYBOOK_BLAME_LOST_H
#define DAYBOOK_BLAME_LOST_H

/* of internal/journal/bpf: the kernel's types, and the rules for cgroups */
#include "kernel.h"

#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lost, &zero);

	if (n)
		*n += 1;
}

#endif
