/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sums for user space: how many calls took how long, and how long they waited in each phase
 * of which commit.
 */
#ifndef DAYBOOK_BLAME_SUMS_H
#define DAYBOOK_BLAME_SUMS_H

#include "lost.h"

/* In the order of `operations` in events.go. */
enum operation {
	FSYNC = 0,
	FDATASYNC = 1,
	MSYNC = 2,
	WRITE = 3,  /* with O_SYNC or O_DSYNC */
	HANDLE = 4, /* the start of a handle outside of a sync, if it had to wait */
};

/* In the order of `phases` in events.go. */
enum phase {
	PHASE_LOCK = 0,       /* a commit waits for open handles */
	PHASE_DATA = 1,       /* a commit waits for ordered data */
	PHASE_LOG = 2,        /* a commit writes the log */
	PHASE_FLUSH = 3,      /* the commit record, with the flush of the disk's cache */
	PHASE_CHECKPOINT = 4, /* a checkpoint frees space in the log */
	PHASE_OWN = 5,        /* the call writes its own data */
	PHASE_REST = 6,
	PHASES = 7,
};

struct wait_key {
	__u64 cgroup;
	__u32 dev;
	__u32 tid; /* 0: the time is of no transaction */
	__u32 operation;
	__u32 memory; /* as in struct commit */
};

struct wait {
	__u64 ns[PHASES];
};

struct bucket_key {
	__u64 cgroup;
	__u32 dev;
	__u16 operation;
	__u16 bucket;
};

/* A call that has ended. Most wait for one commit at most: that is all of their time. */
struct ended_call {
	struct wait_key key;
	__u64 total;
	struct wait wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct wait_key);
	__type(value, struct wait);
} waits SEC(".maps");

/* a histogram for each cgroup, device and operation; only the used buckets */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct bucket_key);
	__type(value, __u64);
} buckets SEC(".maps");

/*
 * The calls that have ended since user space read them: to write one here costs less
 * than to find its entries in `buckets` and `waits`. There are two buffers. User space
 * makes the programs change to the other, waits until none is at work in the first,
 * and reads it. What has no space is added to the maps.
 */
#define ENDED_CALLS 8192 /* of each buffer, a power of 2 */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * ENDED_CALLS);
	__type(key, __u32);
	__type(value, struct ended_call);
} ended_calls SEC(".maps");

__u32 ended_buffer; /* the one in use: 0 or 1 */
/* The calls in each buffer; those above ENDED_CALLS had no space. */
__u32 ended_first;
__u32 ended_second;

/*
 * A log-linear histogram: 8 buckets for each power of two. Bucket 0 is all
 * below 1024 ns, the last is all from 2^37 ns (137 s) on. The same is in
 * histogram.go.
 */
#define FIRST_POWER 10
#define LAST_POWER 37
#define STEPS_LOG2 3

static __always_inline __u32 power_of(__u64 ns)
{
	__u32 power = 0;

	if (ns >> 32)
		power += 32, ns >>= 32;
	if (ns >> 16)
		power += 16, ns >>= 16;
	if (ns >> 8)
		power += 8, ns >>= 8;
	if (ns >> 4)
		power += 4, ns >>= 4;
	if (ns >> 2)
		power += 2, ns >>= 2;
	return power + (ns >> 1 ? 1 : 0);
}

static __always_inline __u16 bucket_of(__u64 ns)
{
	__u32 power = power_of(ns);

	if (power < FIRST_POWER)
		return 0;
	if (power >= LAST_POWER)
		return 1 + ((LAST_POWER - FIRST_POWER) << STEPS_LOG2);
	return 1 + ((power - FIRST_POWER) << STEPS_LOG2) +
	       ((ns >> (power - STEPS_LOG2)) & ((1 << STEPS_LOG2) - 1));
}

static __always_inline void count_call(__u32 dev, __u64 cgroup, __u32 operation, __u64 ns)
{
	struct bucket_key key = {
		.cgroup = cgroup, .dev = dev, .operation = operation, .bucket = bucket_of(ns)};
	__u64 one = 1, *count = bpf_map_lookup_elem(&buckets, &key);

	if (!count && bpf_map_update_elem(&buckets, &key, &one, BPF_NOEXIST) == 0)
		return;
	if (!count)
		count = bpf_map_lookup_elem(&buckets, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		count_lost();
}

static __always_inline struct wait *wait_of(struct wait_key *key)
{
	struct wait fresh = {}, *wait = bpf_map_lookup_elem(&waits, key);

	if (wait)
		return wait;
	bpf_map_update_elem(&waits, key, &fresh, BPF_NOEXIST);
	wait = bpf_map_lookup_elem(&waits, key);
	if (!wait)
		count_lost();
	return wait;
}

static __always_inline void add(struct wait *wait, enum phase phase, __u64 ns)
{
	if (ns)
		__sync_fetch_and_add(&wait->ns[phase], ns);
}

/*
 * Adds the phases of a commit. Most commits have one waiter, so that the entry is
 * new: an attempt to insert it costs less than a lookup before.
 */
static __always_inline bool put_wait(struct wait_key *key, struct wait *phases)
{
	struct wait *wait;

	if (bpf_map_update_elem(&waits, key, phases, BPF_NOEXIST) == 0)
		return true;
	wait = bpf_map_lookup_elem(&waits, key);
	if (!wait) {
		count_lost();
		return false;
	}
	add(wait, PHASE_LOCK, phases->ns[PHASE_LOCK]);
	add(wait, PHASE_DATA, phases->ns[PHASE_DATA]);
	add(wait, PHASE_LOG, phases->ns[PHASE_LOG]);
	add(wait, PHASE_FLUSH, phases->ns[PHASE_FLUSH]);
	add(wait, PHASE_OWN, phases->ns[PHASE_OWN]);
	add(wait, PHASE_REST, phases->ns[PHASE_REST]);
	return true;
}

/* Returns false if there is no space. */
static __always_inline bool put_call(struct wait_key *key, struct wait *wait, __u64 total)
{
	struct ended_call *call;
	__u32 at;

	if (ended_buffer) {
		at = __sync_fetch_and_add(&ended_second, 1);
		if (at >= ENDED_CALLS)
			return false;
		at += ENDED_CALLS;
	} else {
		at = __sync_fetch_and_add(&ended_first, 1);
		if (at >= ENDED_CALLS)
			return false;
	}
	call = bpf_map_lookup_elem(&ended_calls, &at);
	if (!call)
		return false;
	call->key = *key;
	call->total = total;
	call->wait = *wait;
	return true;
}

#endif
