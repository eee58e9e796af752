/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Inodes: which cgroup owns each, and which of them a kernel thread works on.
 */
#ifndef DAYBOOK_INODES_H
#define DAYBOOK_INODES_H

#include "places.h"

#include <bpf/bpf_helpers.h>

#define NO_OWNER 0

struct inode_key {
	__u64 ino;
	__u32 dev;
	__u32 instance;
};

/* An owner that was looked up, and what it is the owner of; see recent_check(). */
struct recent_owner {
	__u64 owner;
	__u64 check;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct inode_key);
	__type(value, __u64);
} owners SEC(".maps");

#define RECENT 256 /* a power of 2 */

/* number of an inode -> what a look at its owner found; to look again costs more */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct recent_owner);
} recent_owners SEC(".maps");

/* number of an inode -> which write by its owner was seen; see write_number() */
__u64 recent_writes[RECENT];

/*
 * Counts the beginnings and the ends of changes to `owners`, and the ends of file
 * systems.
 */
__u64 owner_changes = 1;

/*
 * How many inodes were added to `owners`. An inode that user space neither
 * finds there nor deleted itself was evicted from the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} owners_added SEC(".maps");

/*
 * The inodes that a kernel thread works on; ino 0: none. Their owners are looked up only
 * when a handle of the thread dirtied a block.
 */
struct worker {
	__u64 writeback_ino;
	__u64 conversion_ino;
	__u32 writeback_dev;
	__u32 conversion_dev;
};

/* Free while the thread works on no inode. */
struct worker_place {
	__u32 pid; /* 0: free */
	__u32 pad;
	struct worker worker;
};

/* Says that `workers` has entries. */
__u32 any_worker;

/* Says that a kernel thread has synced a file. */
__u32 any_thread_syncs;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct worker);
} workers SEC(".maps");

struct worker_place worker_places[1 << WORKER_PLACES_LOG2];

#endif
