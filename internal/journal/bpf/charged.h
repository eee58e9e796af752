/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Charged I/O: what the kernel charged to each cgroup on each disk, and which of it belongs to
 * another owner.
 */
#ifndef DAYBOOK_CHARGED_H
#define DAYBOOK_CHARGED_H

#include "lost.h"
#include "places.h"

struct charged_key {
	__u32 disk;
	__u32 pad;
	__u64 cgroup;
};

/*
 * The I/O of a disk that the kernel charged to one cgroup. All of a request's
 * sums are in one entry, because a lookup costs more than all the additions.
 */
struct charged {
	__u64 read_bytes;
	__u64 write_bytes;
	__u64 journal_bytes;  /* of these, written by jbd2 threads */
	__u64 outstanding_ns; /* from the start to the completion of each request */
	__u64 busy_ns;        /* with at least one outstanding request */
	__u64 flush_ns;       /* with a flush of the disk's cache outstanding, and no request */
	/*
	 * The last time span with an outstanding request, among requests that
	 * have ended, and the end of the span before it.
	 */
	__u64 from_ns;
	__u64 until_ns;
	__u64 before_ns;
	/* The end of the last flush. */
	__u64 flushed_ns;
	/* What `disks` said in that generation; it is not looked up again. */
	__u32 observed;
	__u32 generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct charged_key);
	__type(value, struct charged);
} charged_io SEC(".maps");

struct charged_place {
	__u32 state;
	__u32 disk;
	__u64 cgroup;
	struct charged sums;
};

struct charged_place charged_places[1 << CHARGED_PLACES_LOG2];

/*
 * The owner is a cgroup. For KIND_METADATA it is the device and its instance.
 */
struct written_key {
	__u32 disk;
	__u32 kind;
	__u64 charged;
	__u64 owner;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct written_key);
	__type(value, __u64);
} written SEC(".maps");

/*
 * The disks that user space selected, and what is counted there; other disks are
 * ignored. On a device without a request queue that has only the journal of an
 * observed file system, only the journal is counted.
 */
#define DISK_OBSERVED 1
#define DISK_JOURNAL 2

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} disks SEC(".maps");

/* User space adds 1 after it has changed `disks`; 1: never. */
__u32 generation = 1;

__noinline int add_written(__u32 disk, __u32 kind, __u64 charged, __u64 owner, __u64 bytes)
{
	struct written_key key = {.disk = disk, .kind = kind, .charged = charged, .owner = owner};
	__u64 *sum = bpf_map_lookup_elem(&written, &key);

	if (sum) {
		__sync_fetch_and_add(sum, bytes);
		return 0;
	}
	if (bpf_map_update_elem(&written, &key, &bytes, BPF_NOEXIST) == 0)
		return 0;
	sum = bpf_map_lookup_elem(&written, &key);
	if (sum)
		__sync_fetch_and_add(sum, bytes);
	else
		count_lost(LOST_WRITTEN);
	return 0;
}

static __always_inline struct charged_place *charged_place(__u32 disk, __u64 cgroup)
{
#ifdef UNTYPED_TASK
	return NULL;
#else
	struct charged_place *place =
		&charged_places[place_of((__u64)disk << 32 ^ cgroup, CHARGED_PLACES_LOG2)];

	barrier_var(place);
	return place;
#endif
}

static __always_inline bool is_of(struct charged_place *place, __u32 disk, __u64 cgroup)
{
#ifdef UNTYPED_TASK
	return false;
#else
	return place->state == PLACE_READY && place->disk == disk && place->cgroup == cgroup;
#endif
}

/* Returns NULL if the cgroup has no place. */
static __always_inline struct charged *placed_charged(__u32 disk, __u64 cgroup)
{
	struct charged_place *place = charged_place(disk, cgroup);

	return is_of(place, disk, cgroup) ? &place->sums : NULL;
}

/* Returns NULL if nothing is charged to the cgroup yet. */
static __always_inline struct charged *known_charged(__u32 disk, __u64 cgroup)
{
	struct charged_key key = {.disk = disk, .cgroup = cgroup};
	struct charged *sums = placed_charged(disk, cgroup);

	return sums ? sums : bpf_map_lookup_elem(&charged_io, &key);
}

/*
 * Takes the place, or makes an entry in the map. User space adds what it finds in
 * both. The function is not static, so that the verifier checks it once.
 */
__noinline int make_charged(__u32 disk, __u64 cgroup)
{
	struct charged_key key = {.disk = disk, .cgroup = cgroup};
	struct charged fresh = {};
#ifndef UNTYPED_TASK
	struct charged_place *place = charged_place(disk, cgroup);

	if (place &&
	    __sync_val_compare_and_swap(&place->state, PLACE_FREE, PLACE_TAKEN) == PLACE_FREE) {
		place->disk = disk;
		place->cgroup = cgroup;
		place->sums = fresh;
		__sync_lock_test_and_set(&place->state, PLACE_READY);
		return 0;
	}
#endif
	bpf_map_update_elem(&charged_io, &key, &fresh, BPF_NOEXIST);
	return 0;
}

static __always_inline struct charged *find_charged(__u32 disk, __u64 cgroup)
{
	struct charged *sums = known_charged(disk, cgroup);

	if (sums)
		return sums;
	make_charged(disk, cgroup);
	sums = known_charged(disk, cgroup);
	if (!sums)
		count_lost(LOST_WRITTEN);
	return sums;
}

#endif
