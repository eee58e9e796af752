// SPDX-License-Identifier: GPL-2.0
/*
 * Measures how long calls that sync a file take, by file system and cgroup. The
 * result is a histogram for each pair that user space selects. The programs use
 * two tracepoints of ext4. Each call costs one lookup and some additions.
 * Nothing is streamed.
 *
 * A call is fsync, fdatasync, or a write with O_SYNC or O_DSYNC.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "tasks.h"

char LICENSE[] SEC("license") = "GPL";

#define MAX_WATCHED 256
#define MAX_RUNNING 8192

/*
 * Bucket n < 8 counts calls of n units of 1024 ns. Each larger power of two has
 * 8 buckets. The last bucket ends at 2^27 units, which is 137 s. As in
 * buckets.go.
 */
#define BUCKETS 200
#define UNIT_SHIFT 10

struct place {
	__u64 cgroup;
	__u32 dev;
	__u32 zero;
};

struct latencies {
	__u64 calls;
	__u64 data_only; /* of these, fdatasync and O_DSYNC */
	__u64 nanoseconds;
	__u64 buckets[BUCKETS];
};

/* made by user space; a pair that is not in the map is ignored */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHED);
	__type(key, struct place);
	__type(value, struct latencies);
} watched SEC(".maps");

struct call {
	__u64 begin;
	struct place place;
	__u32 data_only;
	__u32 zero;
};

/* thread -> its call */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_RUNNING);
	__type(key, __u64);
	__type(value, struct call);
} running SEC(".maps");

static __always_inline __u32 bucket_of(__u64 nanoseconds)
{
	__u64 units = nanoseconds >> UNIT_SHIFT;
	__u32 log = 3;
	__u32 bucket;

	if (units < 8)
		return units;
	if (units >> (log + 16))
		log += 16;
	if (units >> (log + 8))
		log += 8;
	if (units >> (log + 4))
		log += 4;
	if (units >> (log + 2))
		log += 2;
	if (units >> (log + 1))
		log += 1;
	bucket = (log - 2) * 8 + ((units >> (log - 3)) & 7);
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

SEC("tp_btf/ext4_sync_file_enter")
int BPF_PROG(sync_enter, struct file *file, int data_only)
{
	struct call call = {};
	__u64 thread;

	call.place.dev = file->f_inode->i_sb->s_dev;
	call.place.cgroup = cgroup_of(current_task());
	if (!bpf_map_lookup_elem(&watched, &call.place))
		return 0;
	call.data_only = !!data_only;
	call.begin = bpf_ktime_get_ns();
	thread = bpf_get_current_pid_tgid();
	bpf_map_update_elem(&running, &thread, &call, BPF_ANY);
	return 0;
}

SEC("tp_btf/ext4_sync_file_exit")
int BPF_PROG(sync_exit, struct inode *inode, int error)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&running, &thread);
	struct latencies *latencies;
	__u64 taken;
	__u32 bucket;

	if (!call)
		return 0;
	taken = bpf_ktime_get_ns() - call->begin;
	latencies = bpf_map_lookup_elem(&watched, &call->place);
	if (latencies) {
		bucket = bucket_of(taken);
		__sync_fetch_and_add(&latencies->calls, 1);
		__sync_fetch_and_add(&latencies->nanoseconds, taken);
		if (call->data_only)
			__sync_fetch_and_add(&latencies->data_only, 1);
		if (bucket < BUCKETS)
			__sync_fetch_and_add(&latencies->buckets[bucket], 1);
	}
	bpf_map_delete_elem(&running, &thread);
	return 0;
}
