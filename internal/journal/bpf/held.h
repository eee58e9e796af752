/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bios that wait before they become a request, because io.cost holds them back
 * (ioc_rqos_throttle, block/blk-iocost.c). A wait for a free request of the disk counts as
 * well. User space attaches these programs only while io.cost divides an observed disk.
 */
#ifndef DAYBOOK_HELD_H
#define DAYBOOK_HELD_H

#include "completions.h"

#define HELD_PLACES_LOG2 10

/* Shorter waits are the way to the request, and no one holds the bio back. */
#define HELD_LEAST_NS 20000

/*
 * A submitted bio. It overwrites one with the same hash, whose wait is not counted then. The front
 * of a bio that is split has no entry: it has the vectors of the original, so it is not taken for
 * an earlier bio in the same memory. The rest is the original, which waited for the front, too.
 */
struct held_bio {
	__u64 bio;
	__u64 vectors;
	__u64 since_ns;
};

struct held_bio held_bios[1 << HELD_PLACES_LOG2];

static __always_inline struct held_bio *held_place(__u64 bio)
{
	struct held_bio *place = &held_bios[place_of(bio, HELD_PLACES_LOG2)];

	barrier_var(place);
	return place;
}

/* Runs when a bio is submitted, in the task that waits. */
static __always_inline int begin_hold(struct bio *bio)
{
	__u64 key = as_number(bio);
	struct held_bio *place = held_place(key);

	place->since_ns = bpf_ktime_get_ns();
	place->vectors = (__u64)bio->bi_io_vec;
	place->bio = key;
	return 0;
}

/*
 * Runs when a bio has got a request, in the same task. Its cgroup had I/O outstanding
 * meanwhile. io.cost does not hold back the root cgroup.
 */
static __always_inline int end_hold(struct bio *bio)
{
	__u64 key = as_number(bio), since, charged;
	struct held_bio *place = held_place(key);
	struct charged *sums;

	if (place->bio != key || place->vectors != (__u64)bio->bi_io_vec)
		return 0;
	since = place->since_ns;
	place->bio = 0;
	if (bpf_ktime_get_ns() - since < HELD_LEAST_NS)
		return 0;
	charged = charged_cgroup(bio);
	if (charged == ROOT_CGROUP)
		return 0;
	sums = known_charged(disk_number(gendisk_of(bio)), charged);
	if (sums && sums->observed)
		add_time(sums, since);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_held, struct bio *bio)
{
	return begin_hold(bio);
}

SEC("tp_btf/block_getrq")
int BPF_PROG(bio_released, struct bio *bio)
{
	return end_hold(bio);
}

/* Before 5.11 the first argument was the request queue. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_held_of, void *queue, struct bio *bio)
{
	return begin_hold(bio);
}

SEC("tp_btf/block_getrq")
int BPF_PROG(bio_released_of, void *queue, struct bio *bio)
{
	return end_hold(bio);
}

#endif
