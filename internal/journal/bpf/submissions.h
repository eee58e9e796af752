/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Submitted bios: those of a journal are noted, and those for a device without a request
 * queue are counted.
 */
#ifndef DAYBOOK_SUBMISSIONS_H
#define DAYBOOK_SUBMISSIONS_H

#include "layered.h"

static __always_inline bool is_journal_write(struct bio *bio, __u32 op)
{
	struct inode *inode;

	if (op != REQ_OP_WRITE || !bio->bi_iter.bi_size || !is_committer(current_task()))
		return false;
	/*
	 * Ordered data, or on layers its clone: that of a journal's bio is noted, see
	 * seen_above(). The pages of encrypted data are in no page cache.
	 */
	if ((file_ends && (__u64)bio->bi_end_io == file_ends) || bio->bi_flags & cloned)
		return false;
	if (is_metadata(bio))
		return true;
	inode = cached_inode(bio);
	return !inode || is_block_device(inode);
}

/* Returns the file system of the current task, a jbd2 thread that submits a bio. */
static __always_inline __u32 submitter(struct bio *bio)
{
	if (bios_name_device())
		return journaled_by(bio->bi_bdev->bd_dev);
	return journaled_by((__u32)FOLLOW(current_task(), pid));
}

/*
 * Counts a bio that is submitted to an observed device without a request queue,
 * because no completion of a request is seen there. The disks below count it,
 * too, if they are observed.
 */
static __always_inline void account_submission(struct bio *bio, __u32 disk, __u32 op, bool journal)
{
	__u64 bytes = bio->bi_iter.bi_size, charged = charged_cgroup(bio);
	bool writes = op == REQ_OP_WRITE;
	struct charged *sums;

	if (!bytes)
		return;
	if (op == REQ_OP_READ) {
		sums = find_charged(disk, charged);
		if (sums)
			__sync_fetch_and_add(&sums->read_bytes, bytes);
		return;
	}
	if (!writes && op != REQ_OP_WRITE_ZEROES)
		return;
	sums = find_charged(disk, charged);
	if (!sums)
		return;
	__sync_fetch_and_add(&sums->write_bytes, bytes);
	if (journal)
		add_journal(sums, disk, submitter(bio), bytes);
	else if (writes)
		enter(disk, charged, classify(as_number(bio), charged), bytes);
}

/*
 * Looks up what is noted at the pages of a bio that is about to write. Returns true if the bio
 * is a clone of a noted one, and so for a device below. If the memory of a noted bio is used
 * for another one, what was noted is forgotten.
 */
static __always_inline bool seen_above(struct bio *bio)
{
	__u64 vectors = (__u64)bio->bi_io_vec, key = (__u64)bio;
	struct noted *noted = bpf_map_lookup_elem(&noted_bios, &vectors);

	if (!noted)
		return false;
	if (noted->bio != key)
		return noted->layered && is_about(noted, key);
	if (noted->early)
		noted->early = 0;
	else
		noted->class = 0;
	return false;
}

/*
 * Runs when a bio is submitted, in the context of the writer. A bio of a jbd2
 * thread that is not file data is a journal write. The clones of a bio for a
 * mapped device arrive again for the devices below, perhaps in another task. Once bios are
 * noted, those of all tasks are looked at: each can have the memory of a noted one.
 */
static __always_inline int see_submission(struct bio *bio)
{
	__u32 op = bio->bi_opf & OP_MASK, disk;
	struct gendisk *gendisk;
	bool journal, layered;
	__u32 kind = KIND_JOURNAL;
	__u8 *how;

	/* A journal's bio, too: on a disk without layers it is not noted again below. */
	if (notes && op == REQ_OP_WRITE && seen_above(bio))
		return 0;
	if (!layers && !is_kernel_thread(current_task()))
		return 0;
	journal = is_journal_write(bio, op);
	if (!journal && !layers)
		return 0;
	gendisk = gendisk_of(bio);
	layered = !gendisk->queue->mq_ops;
	if (layered && layers) {
		disk = disk_number(gendisk);
		how = bpf_map_lookup_elem(&disks, &disk);
		if (how && (journal || *how == DISK_OBSERVED)) {
			account_submission(bio, disk, op, journal);
			if (*how == DISK_OBSERVED)
				begin_layered(bio, disk, op);
			kind = KIND_COUNTED;
		}
	}
	if (!journal)
		return 0;
	if (layered)
		layers = 1;
	else if (commit_ends)
		return 0; /* its completion is recognised */
	note_bio((__u64)bio, (__u64)bio->bi_io_vec, layered, false, kind, submitter(bio));
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue, struct bio *bio)
{
	return see_submission(bio);
}

/* Until 5.11 the first argument was the request queue. */
SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue_of, void *queue, struct bio *bio)
{
	return see_submission(bio);
}

#endif
