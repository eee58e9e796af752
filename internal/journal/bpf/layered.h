/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The time of bios on devices without a request queue, which lie on others: there no request
 * says when it began.
 */
#ifndef DAYBOOK_LAYERED_H
#define DAYBOOK_LAYERED_H

#include "completions.h"

struct layered_bio {
	__u64 started_ns;
	__u64 charged;
	__u32 disk;
	__u32 flushes; /* the bio has no data */
};

/*
 * Bios that were submitted and not completed. One that is never seen completed, because the
 * layer ends it in another way, is forgotten when space is needed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct layered_bio);
} layered_bios SEC(".maps");

/* User space sets it when the program for completed bios is attached. */
__u32 times_bios;

/* Notes a bio that is submitted to an observed device without a request queue. */
static __always_inline void begin_layered(struct bio *bio, __u32 disk, __u32 op)
{
	struct layered_bio begun = {.disk = disk};
	__u64 key = (__u64)bio;

	if (!times_bios || (op != REQ_OP_READ && op != REQ_OP_WRITE && op != REQ_OP_WRITE_ZEROES))
		return;
	begun.started_ns = bpf_ktime_get_ns();
	begun.charged = charged_cgroup(bio);
	begun.flushes = !bio->bi_iter.bi_size;
	bpf_map_update_elem(&layered_bios, &key, &begun, BPF_ANY);
}

/*
 * Runs when a bio is completed, of any device. The program is attached only while a device
 * without a request queue is observed.
 */
SEC("tp_btf/block_bio_complete")
int BPF_PROG(bio_complete, void *queue, struct bio *bio)
{
	struct layered_bio *begun;
	struct charged *sums;
	__u64 key = (__u64)bio;

	begun = bpf_map_lookup_elem(&layered_bios, &key);
	if (!begun)
		return 0;
	sums = find_charged(begun->disk, begun->charged);
	if (sums && begun->flushes)
		add_flush(sums, begun->started_ns);
	else if (sums)
		add_time(sums, begun->started_ns);
	bpf_map_delete_elem(&layered_bios, &key);
	return 0;
}

#endif
