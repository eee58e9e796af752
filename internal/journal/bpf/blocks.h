/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Block layer: what is written to a disk, to which cgroup the kernel charges
 * it, and which cgroup owns the files.
 */
#ifndef DAYBOOK_BLOCKS_H
#define DAYBOOK_BLOCKS_H

#include "commits.h"

/*
 * Returns the inode of the file or block device whose page cache a bio writes,
 * or NULL for direct I/O and kernel buffers. The page of a buffer can be any
 * page. So the inode that the page names counts only if that inode's mapping
 * has the page.
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
 * The class of a bio: its kind in the upper bits, and a value in the lower
 * bits. The value of KIND_JOURNAL is the process ID of the jbd2 thread. The
 * value of KIND_DATA is the owner's cgroup. The value of KIND_METADATA is the
 * block device whose page cache is written, with the instance of that device
 * above it. For a loop device with direct I/O, that block device is the loop
 * device, and not the disk below it.
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

/* Since 6.8 jbd2 sets this flag on its own writes. File data never has it. */
static __always_inline bool is_metadata(struct bio *bio)
{
	return bpf_core_enum_value_exists(enum req_flag_bits, __REQ_META) &&
	       bio->bi_opf >> bpf_core_enum_value(enum req_flag_bits, __REQ_META) & 1;
}

/*
 * Runs when a bio is submitted, in the context of the writer. A bio of a jbd2
 * thread that is not file data is a journal write. Only disks with a request
 * queue are considered, because their completion is seen. A bio of a mapped
 * device arrives again for the device below.
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
 * The functions that a loop over bios calls are not static, so that the
 * verifier checks each of them once, and not once in each iteration. They have
 * integer arguments only. The verifier treats their results as unknown numbers.
 * So the states of two iterations do not differ in their bounds. Otherwise the
 * verifier of 6.1 takes minutes for one loop.
 */

/* Returns the class of a bio of a completed write. */
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
			return KIND_NONE; /* mke2fs or the like, charged to its cgroup */
		return (__u64)KIND_METADATA << KIND_SHIFT | pages_of(dev);
	}
	if (charged != ROOT_CGROUP)
		return KIND_NONE;
	value = owner_of(inode);
	if (value == NO_OWNER || value == ROOT_CGROUP || value > VALUE_MASK)
		return KIND_NONE;
	return (__u64)KIND_DATA << KIND_SHIFT | value;
}

/* Adds bytes to the sum that a class, as classify() returns it, belongs to. */
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

/*
 * Returns how many bytes of a bio are completed when that many bytes of it and
 * of the bios after it are completed.
 */
__noinline __u64 part_of(__u64 bio, __u64 bytes)
{
	__u64 size = BPF_CORE_READ((struct bio *)bio, bi_iter.bi_size);

	return size < bytes ? size : bytes;
}

/*
 * Adds a run of bios of one request. Neighbours of the same class are added as
 * one sum. Returns how many of the completed bytes belong to the run.
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

/* Returns the bio after a run of bios, or 0 if there is none. */
__noinline __u64 behind_run(__u64 bio)
{
	__u32 i;

	for (i = 0; i < BIOS_PER_RUN && bio; i++)
		bio = (__u64)BPF_CORE_READ((struct bio *)bio, bi_next);
	return bio;
}

/* A request has one bio, or some bios if they were merged, and seldom many. */
static __always_inline void classify_request(struct request *rq, __u32 disk, __u64 charged,
					     __u64 bytes)
{
	/*
	 * Read as a number. Following the typed pointer would give another
	 * pointer.
	 */
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
 * Returns the part of a request's time span that no earlier request of the
 * cgroup covers, in nanoseconds. Requests arrive here in the order in which
 * they end. So it is enough to remember one span before the last one. If a
 * request covers several gaps, the sum is too small. Two processors at the same
 * time can count a gap twice, because no lock is available here.
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
 * Adds the time for which a request was outstanding, in nanoseconds. The sum
 * over the requests of a cgroup, divided by the elapsed time, is its mean
 * number of requests in the scheduler and on the disk. The time is added once,
 * with the last bytes of the request. The kernel records no start time if
 * neither statistics nor a scheduler need it.
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
 * Runs when a request is completed. It counts to which cgroup the kernel
 * charged the bytes, exactly as /sys/block counts bytes. It also counts what
 * was written: the journal, metadata in place, or file data that is charged to
 * the root cgroup. All bios of a request belong to one cgroup
 * (blk_cgroup_mergeable, block/blk-cgroup.h). On disks that are not observed
 * only journal writes are counted, because the journal of an observed file
 * system may be there.
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

/* Until 5.11 the first argument was the request queue. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue_of, void *queue, struct bio *bio)
{
	return note_journal(bio);
}

#endif
