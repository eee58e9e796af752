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
	return (__u32)disk->major << MINORBITS |
	       (__u32)disk->first_minor;
}

static __always_inline void add_written(__u32 disk, __u32 kind, __u64 charged, __u64 owner,
					__u64 bytes)
{
	struct written_key key = {
		.disk = disk, .kind = kind, .charged = charged, .owner = owner};
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
 * At submission, in the writer's context: what jbd2 logs, and the block
 * device's own pages that anybody else writes in place.
 */
static __always_inline int account_submission(struct bio *bio)
{
	__u32 op = bio->bi_opf & OP_MASK;
	struct committer *committer;
	struct gendisk *gendisk;
	struct inode *inode;
	__u64 bytes;
	__u32 disk;

	if (op != bpf_core_enum_value(enum req_op, REQ_OP_WRITE))
		return 0;
	bytes = bio->bi_iter.bi_size;
	if (!bytes)
		return 0;
	if (bpf_core_field_exists(bio->bi_bdev))
		gendisk = bio->bi_bdev->bd_disk;
	else
		gendisk = ((struct bio___with_disk *)bio)->bi_disk;
	disk = disk_number(gendisk);
	committer = committer_of(current_task(), true);
	if (!committer && !bpf_map_lookup_elem(&disks, &disk))
		return 0;
	inode = cached_inode(bio);
	if (inode && !is_block_device(inode))
		return 0; /* file data: accounted when it completes */
	if (committer) {
		__sync_fetch_and_add(&committer->journal_bytes, bytes);
		committer->journal_disk = disk;
		add_written(disk, KIND_JOURNAL, charged_cgroup(bio), NO_OWNER, bytes);
	} else if (inode) {
		add_written(disk, KIND_METADATA, charged_cgroup(bio), NO_OWNER, bytes);
	}
	return 0;
}

/*
 * At completion: in whose name the disk worked, to the byte as /sys/block
 * counts it, and whose file data went out in the root cgroup's name. A
 * request holds bios of one cgroup only (block/blk-cgroup.h,
 * blk_cgroup_mergeable), but perhaps of several files.
 */
static __always_inline int account_completion(struct request *rq, __u64 bytes)
{
	__u32 op = rq->cmd_flags & OP_MASK;
	struct bio *bio = rq->bio;
	struct gendisk *gendisk;
	struct inode *inode;
	__u64 charged, owner, part;
	__u32 disk, i;
	bool write = op == bpf_core_enum_value(enum req_op, REQ_OP_WRITE);

	if (!bio || !bytes)
		return 0;
	if (bpf_core_field_exists(rq->q->disk))
		gendisk = rq->q->disk;
	else
		gendisk = ((struct request___with_disk *)rq)->rq_disk;
	disk = disk_number(gendisk);
	if (!bpf_map_lookup_elem(&disks, &disk))
		return 0;
	charged = charged_cgroup(bio);
	if (op == bpf_core_enum_value(enum req_op, REQ_OP_READ)) {
		add_written(disk, KIND_CHARGED_READ, charged, NO_OWNER, bytes);
		return 0;
	}
	if (!write && op != bpf_core_enum_value(enum req_op, REQ_OP_WRITE_ZEROES))
		return 0;
	add_written(disk, KIND_CHARGED_WRITE, charged, NO_OWNER, bytes);
	if (!write || charged != ROOT_CGROUP)
		return 0;
	for (i = 0; i < BIOS_PER_REQUEST && bio && bytes; i++) {
		part = bio->bi_iter.bi_size;
		if (part > bytes)
			part = bytes;
		inode = cached_inode(bio);
		if (!inode || is_block_device(inode))
			break; /* neighbours on the disk are of one kind */
		owner = owner_of(inode);
		if (owner != NO_OWNER && owner != ROOT_CGROUP)
			add_written(disk, KIND_DATA, charged, owner, part);
		bytes -= part;
		bio = bio->bi_next;
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
	return account_submission(bio);
}

/* The request queue came first until 5.11. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue_of, void *queue, struct bio *bio)
{
	return account_submission(bio);
}

#endif
