/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the disk was told to do, in whose name and for whose files.
 */
#ifndef DAYBOOK_BLOCKS_H
#define DAYBOOK_BLOCKS_H

#include "commits.h"

/*
 * The file or block-device inode whose page cache a bio writes; NULL for
 * direct I/O and kernel buffers. What the page says is believed only if the
 * inode says it too, because a buffer's page can be anything.
 */
static __always_inline struct inode *cached_inode(struct bio *bio)
{
	unsigned int index = BPF_CORE_READ(bio, bi_iter.bi_idx);
	struct bio_vec *vectors = BPF_CORE_READ(bio, bi_io_vec);
	struct address_space *mapping = NULL;
	struct page *page = NULL;
	struct inode *inode;
	unsigned long head;

	if (!vectors)
		return NULL;
	bpf_probe_read_kernel(&page, sizeof(page),
			      (void *)vectors + index * bpf_core_type_size(struct bio_vec) +
				      bpf_core_field_offset(struct bio_vec, bv_page));
	if (!page)
		return NULL;
	head = BPF_CORE_READ(page, compound_head);
	if (head & 1)
		page = (struct page *)(head - 1);
	if (bpf_core_type_exists(struct folio))
		mapping = BPF_CORE_READ((struct folio *)page, mapping);
	else
		mapping = BPF_CORE_READ(page, mapping);
	if (!mapping || ((unsigned long)mapping & 3))
		return NULL;
	inode = BPF_CORE_READ(mapping, host);
	if (!inode || BPF_CORE_READ(inode, i_mapping) != mapping)
		return NULL;
	return inode;
}

static __always_inline __u32 disk_number(struct gendisk *disk)
{
	return (__u32)disk->major << MINORBITS | (__u32)disk->first_minor;
}

static __always_inline void add_written(__u32 disk, __u32 kind, __u64 charged, __u64 owner,
					__u64 bytes)
{
	struct written_key key = {.disk = disk, .kind = kind, .charged = charged, .owner = owner};
	__u64 *sum = bpf_map_lookup_elem(&written, &key);

	if (sum) {
		__sync_fetch_and_add(sum, bytes);
		return;
	}
	if (bpf_map_update_elem(&written, &key, &bytes, BPF_NOEXIST) == 0)
		return;
	sum = bpf_map_lookup_elem(&written, &key);
	if (sum)
		__sync_fetch_and_add(sum, bytes);
	else
		count_lost(LOST_WRITTEN);
}

static __always_inline __u64 charged_cgroup(struct bio *bio)
{
	struct blkcg_gq *blkg = bio->bi_blkg;
	__u64 id = blkg ? blkg->blkcg->css.cgroup->kn->id : 0;

	return id ? id : ROOT_CGROUP;
}

static __always_inline bool is_block_device(struct inode *inode)
{
	return (BPF_CORE_READ(inode, i_mode) & S_IFMT) == S_IFBLK;
}

/*
 * What a bio is: a kind, above its value, which is the jbd2 thread of
 * KIND_JOURNAL, the owner's cgroup of KIND_DATA and, of KIND_METADATA, the
 * device whose page it is and, above, the device's instance: below a loop device
 * with direct I/O that is the loop device, not this disk.
 */
#define KIND_SHIFT 56
#define VALUE_MASK ((1ULL << KIND_SHIFT) - 1)

#define INSTANCE_SHIFT 32

static __always_inline __u64 pages_of(__u32 dev)
{
	return (__u64)instance_of(dev) << INSTANCE_SHIFT | dev;
}

static __always_inline void note_bio(struct bio *bio, __u32 kind, __u64 value)
{
	__u64 key = (__u64)bio, class = (__u64)kind << KIND_SHIFT | value;

	if (bpf_map_update_elem(&noted_bios, &key, &class, BPF_ANY))
		count_lost(LOST_JOURNAL);
}

/* jbd2 says so of what it writes itself since 6.8; of file data, nobody does. */
static __always_inline bool is_metadata(struct bio *bio)
{
	return bpf_core_enum_value_exists(enum req_flag_bits, __REQ_META) &&
	       bio->bi_opf >> bpf_core_enum_value(enum req_flag_bits, __REQ_META) & 1;
}

/*
 * At submission, in the writer's context: the bios of a jbd2 thread that are
 * not file data are the journal's. Only of disks with a request queue, whose
 * completion will be seen; a mapped device's bio comes by once more below.
 */
static __always_inline int note_journal(struct bio *bio)
{
	__u32 op = bio->bi_opf & OP_MASK;
	struct task_struct *task = current_task();
	struct gendisk *gendisk;
	struct inode *inode;

	if (op != bpf_core_enum_value(enum req_op, REQ_OP_WRITE) || !bio->bi_iter.bi_size)
		return 0;
	if (!committer_of(task, true))
		return 0;
	if (bpf_core_field_exists(bio->bi_bdev))
		gendisk = bio->bi_bdev->bd_disk;
	else
		gendisk = ((struct bio___with_disk *)bio)->bi_disk;
	if (!gendisk->queue->mq_ops)
		return 0;
	if (!is_metadata(bio)) {
		inode = cached_inode(bio);
		if (inode && !is_block_device(inode))
			return 0;
	}
	note_bio(bio, KIND_JOURNAL, (__u32)FOLLOW(task, pid));
	return 0;
}

/*
 * The functions that a loop over bios calls are not static: the verifier
 * checks them once and not once for each turn. They take numbers only. What
 * they return is any number to the verifier, so that the states of two turns
 * do not differ in bounds; else the verifier of 6.1 takes minutes for a loop.
 */

/* What a bio of a completed write was. */
__noinline __u64 classify(__u64 key, __u64 charged)
{
	__u64 *noted = bpf_map_lookup_elem(&noted_bios, &key);
	struct inode *inode;
	__u64 value;
	__u32 dev;

	if (noted) {
		value = *noted;
		bpf_map_delete_elem(&noted_bios, &key);
		return value;
	}
	inode = cached_inode((struct bio *)key);
	if (!inode)
		return KIND_NONE;
	if (is_block_device(inode)) {
		dev = BPF_CORE_READ(inode, i_rdev);
		if (is_unmounted(dev))
			return KIND_NONE; /* mke2fs, or the like, in its own name */
		return (__u64)KIND_METADATA << KIND_SHIFT | pages_of(dev);
	}
	if (charged != ROOT_CGROUP)
		return KIND_NONE;
	value = owner_of(inode);
	if (value == NO_OWNER || value == ROOT_CGROUP || value > VALUE_MASK)
		return KIND_NONE;
	return (__u64)KIND_DATA << KIND_SHIFT | value;
}

/* Enters bytes of what classify() said. */
__noinline int enter(__u32 disk, __u64 charged, __u64 class, __u64 bytes)
{
	__u32 kind = class >> KIND_SHIFT, pid = (__u32) class;
	struct committer *committer;

	if (kind == KIND_NONE || !bytes)
		return 0;
	add_written(disk, kind, charged, kind == KIND_JOURNAL ? NO_OWNER : class & VALUE_MASK,
		    bytes);
	if (kind != KIND_JOURNAL)
		return 0;
	committer = bpf_map_lookup_elem(&committers, &pid);
	if (!committer)
		return 0;
	__sync_fetch_and_add(&committer->journal_bytes, bytes);
	committer->journal_disk = disk;
	return 0;
}

/* How much of a bio is completed when bytes of it and those behind it are. */
__noinline __u64 part_of(__u64 bio, __u64 bytes)
{
	__u64 size = BPF_CORE_READ((struct bio *)bio, bi_iter.bi_size);

	return size < bytes ? size : bytes;
}

/*
 * Enters a run of a request's bios, neighbours of one class as one sum, and
 * returns the bytes that were completed of them.
 */
__noinline __u64 enter_run(__u64 bio, __u64 bytes, __u32 disk, __u64 charged)
{
	__u64 class = KIND_NONE, sum = 0, left = bytes, next, part;
	__u32 i;

	for (i = 0; i < BIOS_PER_RUN && bio && left; i++) {
		part = part_of(bio, left);
		next = classify(bio, charged);
		if (next != class) {
			enter(disk, charged, class, sum);
			class = next;
			sum = 0;
		}
		sum += part;
		left -= part;
		bio = (__u64)BPF_CORE_READ((struct bio *)bio, bi_next);
	}
	enter(disk, charged, class, sum);
	return bytes - left;
}

/* The bio behind a run of bios; 0 if there is none. */
__noinline __u64 behind_run(__u64 bio)
{
	__u32 i;

	for (i = 0; i < BIOS_PER_RUN && bio; i++)
		bio = (__u64)BPF_CORE_READ((struct bio *)bio, bi_next);
	return bio;
}

/* Bios can have been merged: a request has one or some, seldom many. */
static __always_inline void classify_request(struct request *rq, __u32 disk, __u64 charged,
					     __u64 bytes)
{
	/* Read, not followed: a number, where a typed pointer stays a pointer. */
	__u64 bio = (__u64)BPF_CORE_READ(rq, bio);
	__u32 i;

	for (i = 0; i < BIOS_PER_REQUEST / BIOS_PER_RUN && bio; i++) {
		bytes -= enter_run(bio, bytes, disk, charged);
		if (!bytes)
			return;
		bio = behind_run(bio);
	}
}

/*
 * The part of the time span of a request that no earlier request of the cgroup
 * covers. Requests come here in the order in which they end, so one span behind
 * the last one is enough, unless a request spans several gaps: then the sum is too
 * short. Two processors at once can count a gap twice: a lock is not to be had here.
 */
static __always_inline __u64 newly_busy(__u32 disk, __u64 charged, __u64 started, __u64 now)
{
	struct busy_key key = {.disk = disk, .charged = charged};
	struct busy first = {.from_ns = started, .until_ns = now};
	struct busy *span = bpf_map_lookup_elem(&busy, &key);
	__u64 from, until, gap, sum;

	if (!span) {
		bpf_map_update_elem(&busy, &key, &first, BPF_ANY);
		return now - started;
	}
	from = span->from_ns;
	until = span->until_ns;
	if (now <= until)
		return 0;
	span->until_ns = now;
	if (started > until) {
		span->before_ns = until;
		span->from_ns = started;
		return now - started;
	}
	sum = now - until;
	gap = span->before_ns > started ? span->before_ns : started;
	if (gap < from) {
		span->from_ns = gap;
		sum += from - gap;
	}
	return sum;
}

/*
 * How long a request was outstanding: the sum over a cgroup's requests, divided
 * by the time that passed, is its mean number of requests in the scheduler and
 * on the disk. Entered once, with the last bytes of the request. The kernel
 * notes no start where neither statistics nor a scheduler need it.
 */
static __always_inline void add_outstanding(struct request *rq, __u32 disk, __u64 charged,
					    __u64 bytes)
{
	__u64 started = rq->start_time_ns, now = bpf_ktime_get_ns();

	if (!started || now <= started || bytes < rq->__data_len)
		return;
	add_written(disk, KIND_OUTSTANDING, charged, NO_OWNER, now - started);
	add_written(disk, KIND_BUSY, charged, NO_OWNER, newly_busy(disk, charged, started, now));
}

/*
 * At completion: in whose name the disk worked, to the byte as /sys/block
 * counts it, and what it wrote: the journal, metadata in place, or file data
 * in the root cgroup's name. A request holds bios of one cgroup only
 * (blk_cgroup_mergeable, block/blk-cgroup.h). Of disks that are not observed
 * only journals are accounted: a file system may have its journal elsewhere.
 */
static __always_inline int account_completion(struct request *rq, __u64 bytes)
{
	__u32 op = rq->cmd_flags & OP_MASK;
	struct bio *bio = rq->bio;
	struct gendisk *gendisk;
	__u64 charged, key = (__u64)BPF_CORE_READ(rq, bio);
	__u32 disk;
	bool observed;

	if (!bio || !bytes)
		return 0;
	if (bpf_core_field_exists(rq->q->disk))
		gendisk = rq->q->disk;
	else
		gendisk = ((struct request___with_disk *)rq)->rq_disk;
	disk = disk_number(gendisk);
	observed = bpf_map_lookup_elem(&disks, &disk);
	charged = charged_cgroup(bio);
	if (op == bpf_core_enum_value(enum req_op, REQ_OP_READ)) {
		if (observed) {
			add_written(disk, KIND_CHARGED_READ, charged, NO_OWNER, bytes);
			add_outstanding(rq, disk, charged, bytes);
		}
		return 0;
	}
	if (op == bpf_core_enum_value(enum req_op, REQ_OP_WRITE)) {
		if (!observed && !bpf_map_lookup_elem(&noted_bios, &key))
			return 0;
		classify_request(rq, disk, charged, bytes);
	} else if (op != bpf_core_enum_value(enum req_op, REQ_OP_WRITE_ZEROES)) {
		return 0;
	}
	if (observed) {
		add_written(disk, KIND_CHARGED_WRITE, charged, NO_OWNER, bytes);
		add_outstanding(rq, disk, charged, bytes);
	}
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, __u64 error, __u64 bytes)
{
	return account_completion(rq, (__u32)bytes);
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue, struct bio *bio)
{
	return note_journal(bio);
}

/* The request queue came first until 5.11. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue_of, void *queue, struct bio *bio)
{
	return note_journal(bio);
}

#endif
