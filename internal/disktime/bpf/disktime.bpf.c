// SPDX-License-Identifier: GPL-2.0
/*
 * Measures how long requests wait in the scheduler's queue, and how long the disk
 * takes for them. The result is a sum for each disk, cgroup and class. Each
 * request costs a few map operations. Nothing is streamed.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define OP_MASK 0xff /* REQ_OP_MASK */
#define REQ_OP_FLUSH_NUMBER 2

/* The classes, the same as in times.go. */
enum class {
	CLASS_READ,
	CLASS_DATA,
	CLASS_METADATA, /* the journal's writes, and metadata in place */
	CLASS_FLUSH,
};

struct request_key {
	__u64 cgroup; /* that the kernel charges; 0 for a flush */
	__u32 disk;
	__u32 class;
};

struct request_sums {
	__u64 requests;
	__u64 bytes;
	__u64 queued_ns;
	__u64 served_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct request_key);
	__type(value, struct request_sums);
} requests SEC(".maps");

/* a request on the disk -> when it was sent there */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u64);
} issued SEC(".maps");

SEC("tp_btf/block_rq_issue")
int BPF_PROG(rq_issue, struct request *rq)
{
	__u64 key = (__u64)rq, now = bpf_ktime_get_ns();

	bpf_map_update_elem(&issued, &key, &now, BPF_ANY);
	return 0;
}

static __always_inline int class_of(struct request *rq)
{
	__u32 op = rq->cmd_flags & OP_MASK;

	if (op == REQ_OP_FLUSH_NUMBER)
		return CLASS_FLUSH;
	if (op == bpf_core_enum_value(enum req_op, REQ_OP_READ))
		return CLASS_READ;
	if (op != bpf_core_enum_value(enum req_op, REQ_OP_WRITE))
		return -1;
	if (rq->cmd_flags >> bpf_core_enum_value(enum req_flag_bits, __REQ_META) & 1)
		return CLASS_METADATA;
	return CLASS_DATA;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, __u64 error, unsigned int bytes)
{
	__u64 at = (__u64)rq, *sent, now, started = rq->start_time_ns;
	struct request_sums fresh = {}, *sums;
	struct request_key key = {};
	struct gendisk *gendisk;
	struct bio *bio = rq->bio;
	int class = class_of(rq);

	if (class < 0 || bytes < rq->__data_len)
		return 0; /* more of it is outstanding */
	sent = bpf_map_lookup_elem(&issued, &at);
	if (!sent)
		return 0;
	if (bpf_core_field_exists(rq->q->disk))
		gendisk = rq->q->disk;
	else
		gendisk = ((struct request___with_disk *)rq)->rq_disk;
	if (!gendisk)
		return 0;
	key.disk = (__u32)gendisk->major << MINORBITS | (__u32)gendisk->first_minor;
	key.class = class;
	if (bio && bio->bi_blkg)
		key.cgroup = bio->bi_blkg->blkcg->css.cgroup->kn->id;
	now = bpf_ktime_get_ns();
	sums = bpf_map_lookup_elem(&requests, &key);
	if (!sums) {
		bpf_map_update_elem(&requests, &key, &fresh, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&requests, &key);
	}
	if (sums) {
		__sync_fetch_and_add(&sums->requests, 1);
		__sync_fetch_and_add(&sums->bytes, bytes);
		if (now > *sent)
			__sync_fetch_and_add(&sums->served_ns, now - *sent);
		if (started && *sent > started)
			__sync_fetch_and_add(&sums->queued_ns, *sent - started);
	}
	bpf_map_delete_elem(&issued, &at);
	return 0;
}
