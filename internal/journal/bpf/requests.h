/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests: adds what each has written to the sums that its bios belong to.
 */
#ifndef DAYBOOK_REQUESTS_H
#define DAYBOOK_REQUESTS_H

#include "charged.h"
#include "classes.h"

#define BIOS_PER_REQUEST 512 /* further bios of a request count as charged to the root cgroup */
#define BIOS_PER_RUN 16      /* bios in the loop of one function */
#define TYPED_BIOS 4         /* the first bios of a request, which are read faster */
#define LOG_BIOS 32          /* the most bios of a request that are taken together */

/* Adds journal bytes to the commit of a file system. */
__noinline int add_committed(__u32 dev, __u32 disk, __u64 bytes)
{
	struct filesystem *fs = find_filesystem(dev);

	if (!fs)
		return 0;
	__sync_fetch_and_add(&fs->committer.journal_bytes, bytes);
	fs->committer.journal_disk = disk;
	return 0;
}

static __always_inline void add_journal(struct charged *sums, __u32 disk, __u32 dev, __u64 bytes)
{
	struct filesystem_place *place = filesystem_place(dev);

	__sync_fetch_and_add(&sums->journal_bytes, bytes);
	if (!is_its(place, dev)) {
		add_committed(dev, disk, bytes);
		return;
	}
	__sync_fetch_and_add(&place->filesystem.committer.journal_bytes, bytes);
	place->filesystem.committer.journal_disk = disk;
}

/* Adds bytes to the sum that a class, as classify() returns it, belongs to. */
static __always_inline void add_class(struct charged *sums, __u32 disk, __u64 charged, __u64 class,
				      __u64 bytes)
{
	__u32 kind = class >> KIND_SHIFT;

	if (kind == KIND_JOURNAL)
		add_journal(sums, disk, (__u32) class, bytes);
	else if (kind != KIND_NONE && kind != KIND_COUNTED)
		add_written(disk, kind, charged, class & VALUE_MASK, bytes);
}

/* The same in a function that the verifier checks once. */
__noinline int enter(__u32 disk, __u64 charged, __u64 class, __u64 bytes)
{
	struct charged *sums;

	if (class >> KIND_SHIFT == KIND_NONE || !bytes)
		return 0;
	sums = find_charged(disk, charged);
	if (sums)
		add_class(sums, disk, charged, class, bytes);
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

/* Returns a number whose top bit says that x is not 0, without a branch. */
static __always_inline __u64 top_bit(__u64 x)
{
	return x | -x;
}

/*
 * Says that all bios of a request are blocks of a log, if the first one is a buffer.
 * The log of a commit is written in one request, or in few, so that looking at each of
 * its buffers would be most of the work of an fsync. The bios of a request are
 * neighbours on the disk, in order. If the first and the last are of a commit, and those
 * between are buffers, too, then they are in the log: its buffers, or blocks with
 * revocations, which have another function. The superblock of a journal is before all of
 * its log.
 */
static __always_inline bool is_log(struct request *rq, struct bio *bio, struct bio *last,
				   __u64 bytes)
{
	__u64 others = 0, ends;
	__u32 i;

	if (!is_of_commit((__u64)bio->bi_end_io, bio->bi_private))
		return false;
	if (bio == last)
		return true;
	if (!last || bytes < rq->__data_len || bio->bi_bdev != last->bi_bdev ||
	    !is_of_commit((__u64)last->bi_end_io, last->bi_private))
		return false;
	/*
	 * One exit, and no branch for each bio, so that the verifier follows few paths. A
	 * bio that is NULL reads as no buffer. For the verifier of 7.2 a function's address
	 * is a pointer, so no number to compute with.
	 */
	for (i = 0; i < LOG_BIOS && bio != last; i++) {
		ends = as_unknown((__u64)bio->bi_end_io);
		others |= top_bit(ends ^ buffer_ends) & top_bit(ends ^ commit_ends);
		bio = bio->bi_next;
	}
	return bio == last && !(others >> 63);
}

/*
 * A request has one bio, or some bios if they were merged, and seldom many. The
 * first bios are read through typed pointers, and the others with helper calls
 * in functions. This is a function so that the requests of an fsync, which do not come
 * here, have the registers.
 */
static __noinline int classify_request(struct bio *bio, struct charged *sums, __u32 disk,
				       __u64 charged, __u64 bytes)
{
	__u64 class = KIND_NONE, sum = 0, next, part, number;
	__u32 i;

	for (i = 0; i < TYPED_BIOS; i++) {
		part = bio->bi_iter.bi_size;
		if (part > bytes)
			part = bytes;
		next = as_unknown(class_of(bio, charged));
		if (next != class) {
			if (sum)
				enter(disk, charged, class, sum);
			class = next;
			sum = 0;
		}
		sum += part;
		bytes -= part;
		bio = bio->bi_next;
		if (!bio || !bytes)
			break;
	}
	add_class(sums, disk, charged, class, sum);
	if (!bio)
		return 0;
	number = as_number(bio);
	for (i = 0; i < BIOS_PER_REQUEST / BIOS_PER_RUN && number && bytes; i++) {
		bytes -= enter_run(number, bytes, disk, charged);
		if (bytes)
			number = behind_run(number);
	}
	return 0;
}

/* Adds what a request has written to the sums that its bios belong to. */
static __always_inline void add_written_request(struct request *rq, struct bio *bio,
						struct charged *sums, __u32 disk, __u64 charged,
						__u64 bytes)
{
	struct bio *last = rq->biotail;
	__u64 ends;

	if (ends_are_known()) {
		ends = (__u64)bio->bi_end_io;
		if (ends == buffer_ends || ends == commit_ends) {
			if (is_log(rq, bio, last, bytes)) {
				add_journal(sums, disk, journaled_by(bio->bi_bdev->bd_dev), bytes);
				return;
			}
		}
	}
	classify_request(bio, sums, disk, charged, bytes);
}

#endif
