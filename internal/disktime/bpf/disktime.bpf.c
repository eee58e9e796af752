// SPDX-License-Identifier: GPL-2.0
/*
 * Measures how long requests wait in the scheduler's queue, how long the disk takes
 * for them, and how far apart they are on it. The result is a sum for each disk,
 * cgroup and class. Each request costs a few map operations. Nothing is streamed.
 */
#include "ends.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* a member that the other programs do not need */
struct request___with_sector {
	__u64 __sector;
} __attribute__((preserve_access_index));

#define OP_MASK 0xff /* REQ_OP_MASK */

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
	__u64 alone_ns; /* of served_ns: since the request before it on the disk has ended */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct request_key);
	__type(value, struct request_sums);
} requests SEC(".maps");

/* Larger requests are in no move: their length counts for more than their way. */
#define LARGEST_MOVE_BYTES (32 << 10)

/* requests of one cgroup and class that were sent to the disk after one of another */
struct move_key {
	__u64 cgroup;
	__u64 before_cgroup;
	__u32 disk;
	__u16 class;
	__u16 before_class;
};

/* The root of a way is that of its sectors. A sum of 2^20 requests fits. */
struct move_sums {
	__u64 requests;
	__u64 roots;
	__u64 sectors;
	__u64 alone_us;
	__u64 products; /* root * alone_us */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct move_key);
	__type(value, struct move_sums);
} moves SEC(".maps");

/* what a disk did last */
struct last {
	__u64 cgroup;   /* of the request that was sent last, without flushes */
	__u64 sector;   /* after it */
	__u64 ended_ns; /* when a request ended last */
	__u32 class;
	__u32 known;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct last);
} disks SEC(".maps");

/* a request on the disk */
struct sent {
	__u64 ns; /* when it was sent */
	__u64 before_cgroup;
	__u32 before_class;
	__s32 root; /* of the way from the request before; -1: not known */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct sent);
} issued SEC(".maps");

/* A test sets it to false: then the log is recognised as on kernels that do not mark it. */
const volatile bool marks = true;

/*
 * jbd2 marks its writes since 6.8, and in updates of some older kernels. On others, blocks
 * with revocations can be the first of a commit's request.
 */
static __always_inline bool is_of_journal(struct request *rq)
{
	struct bio *first = rq->bio, *last = rq->biotail;

	if (marks && rq->cmd_flags >> bpf_core_enum_value(enum req_flag_bits, __REQ_META) & 1)
		return true;
	if (!buffer_ends || !first)
		return false;
	return is_of_commit((__u64)first->bi_end_io, first->bi_private) ||
	       (last && is_of_commit((__u64)last->bi_end_io, last->bi_private));
}

static __always_inline int class_of(struct request *rq)
{
	__u32 op = rq->cmd_flags & OP_MASK;

	if (op == REQ_OP_FLUSH)
		return CLASS_FLUSH;
	if (op == REQ_OP_READ)
		return CLASS_READ;
	if (op != REQ_OP_WRITE)
		return -1;
	return is_of_journal(rq) ? CLASS_METADATA : CLASS_DATA;
}

/* key_of fills in the key of a request. It returns false for one that is not counted. */
static __always_inline bool key_of(struct request *rq, struct request_key *key)
{
	struct gendisk *gendisk;
	struct bio *bio = rq->bio;
	int class = class_of(rq);

	if (class < 0)
		return false;
	if (bpf_core_field_exists(rq->q->disk))
		gendisk = rq->q->disk;
	else
		gendisk = ((struct request___with_disk *)rq)->rq_disk;
	if (!gendisk)
		return false;
	key->disk = (__u32)gendisk->major << MINORBITS | (__u32)gendisk->first_minor;
	key->class = class;
	if (bio && bio->bi_blkg)
		key->cgroup = bio->bi_blkg->blkcg->css.cgroup->kn->id;
	return true;
}

/*
 * root_of is the integer square root of a number of sectors below 2^40. It has no
 * branches, because the verifier would follow each combination of them.
 */
static __always_inline __u32 root_of(__u64 sectors)
{
	__u64 root = 0, bit = 1ULL << 38, least, taken;
	int i;

	for (i = 0; i < 20; i++, bit >>= 2) {
		least = root + bit;
		taken = ((sectors - least) >> 63) - 1; /* all bits, or none if sectors < least */
		barrier_var(taken);
		sectors -= least & taken;
		root = (root >> 1) + (bit & taken);
	}
	return root;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(rq_issue, struct request *rq)
{
	__u64 at = (__u64)rq, sector = ((struct request___with_sector *)rq)->__sector;
	struct sent sent = {.ns = bpf_ktime_get_ns(), .root = -1};
	struct request_key key = {};
	struct last *last, fresh = {};

	if (!key_of(rq, &key))
		return 0;
	if (key.class != CLASS_FLUSH) {
		last = bpf_map_lookup_elem(&disks, &key.disk);
		if (!last) {
			bpf_map_update_elem(&disks, &key.disk, &fresh, BPF_NOEXIST);
			last = bpf_map_lookup_elem(&disks, &key.disk);
		}
		if (last) {
			if (last->known && rq->__data_len <= LARGEST_MOVE_BYTES) {
				sent.root = root_of(sector > last->sector ? sector - last->sector
									  : last->sector - sector);
				sent.before_cgroup = last->cgroup;
				sent.before_class = last->class;
			}
			last->cgroup = key.cgroup;
			last->class = key.class;
			last->sector = sector + (rq->__data_len >> 9);
			last->known = 1;
		}
	}
	bpf_map_update_elem(&issued, &at, &sent, BPF_ANY);
	return 0;
}

/* add_move adds a request to those that were sent after one of the same kind. */
static __always_inline void add_move(const struct request_key *key, const struct sent *sent,
				     __u64 alone_us)
{
	struct move_sums fresh = {}, *sums;
	struct move_key move = {
		.cgroup = key->cgroup,
		.before_cgroup = sent->before_cgroup,
		.disk = key->disk,
		.class = key->class,
		.before_class = sent->before_class,
	};

	sums = bpf_map_lookup_elem(&moves, &move);
	if (!sums) {
		bpf_map_update_elem(&moves, &move, &fresh, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&moves, &move);
	}
	if (!sums)
		return;
	__sync_fetch_and_add(&sums->requests, 1);
	__sync_fetch_and_add(&sums->roots, (__u64)sent->root);
	__sync_fetch_and_add(&sums->sectors, (__u64)sent->root * (__u64)sent->root);
	__sync_fetch_and_add(&sums->alone_us, alone_us);
	__sync_fetch_and_add(&sums->products, (__u64)sent->root * alone_us);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, __u64 error, unsigned int bytes)
{
	__u64 at = (__u64)rq, now, began, started = rq->start_time_ns;
	struct request_sums fresh = {}, *sums;
	struct request_key key = {};
	struct last *last;
	struct sent *sent;

	if (bytes < rq->__data_len)
		return 0; /* more of it is outstanding */
	sent = bpf_map_lookup_elem(&issued, &at);
	if (!sent || !key_of(rq, &key))
		return 0;
	now = bpf_ktime_get_ns();
	began = sent->ns;
	last = bpf_map_lookup_elem(&disks, &key.disk);
	if (last) {
		if (last->ended_ns > began)
			began = last->ended_ns;
		last->ended_ns = now;
	}
	sums = bpf_map_lookup_elem(&requests, &key);
	if (!sums) {
		bpf_map_update_elem(&requests, &key, &fresh, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&requests, &key);
	}
	if (sums) {
		__sync_fetch_and_add(&sums->requests, 1);
		__sync_fetch_and_add(&sums->bytes, bytes);
		if (now > sent->ns)
			__sync_fetch_and_add(&sums->served_ns, now - sent->ns);
		if (now > began)
			__sync_fetch_and_add(&sums->alone_ns, now - began);
		if (started && sent->ns > started)
			__sync_fetch_and_add(&sums->queued_ns, sent->ns - started);
	}
	if (sent->root >= 0 && now > began)
		add_move(&key, sent, (now - began) / 1000);
	bpf_map_delete_elem(&issued, &at);
	return 0;
}
