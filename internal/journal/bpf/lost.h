/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Losses. Each map has a maximum size. If a hash map is full, what is not counted is counted
 * here. An LRU map evicts the oldest entry.
 */
#ifndef DAYBOOK_LOST_H
#define DAYBOOK_LOST_H

#include "kernel.h"

#include <bpf/bpf_helpers.h>

enum lost {
	LOST_DIRTIED = 0,  /* map `dirtied` full */
	LOST_WRITTEN = 1,  /* map `written` or `charged_io` full */
	LOST_COMMIT = 2,   /* ring buffer full */
	LOST_JOURNAL = 3,  /* map `noted_bios` full */
	LOST_LOGGED = 4,   /* map `logged` full */
	LOST_INSTANCE = 5, /* map `instances` or `filesystems` full */
	LOST_KINDS = 6,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOST_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void count_lost(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &what);

	if (n)
		*n += 1;
}

#endif
