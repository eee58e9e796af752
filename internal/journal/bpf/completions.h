/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completed requests: their bytes and their time, by the cgroup that the kernel charged.
 */
#ifndef DAYBOOK_COMPLETIONS_H
#define DAYBOOK_COMPLETIONS_H

#include "requests.h"

/*
 * Returns the part of a request's time span that no earlier request of the
 * cgroup covers, in nanoseconds. Requests arrive here in the order in which
 * they end. So it is enough to remember one span before the last one. If a
 * request covers several gaps, the sum is too small. Two processors at the same
 * time can count a gap twice, because no lock is available here.
 */
static __always_inline __u64 newly_busy(struct charged *sums, __u64 started, __u64 now)
{
	__u64 from = sums->from_ns, until = sums->until_ns, gap, sum;

	if (now <= until)
		return 0;
	sums->until_ns = now;
	if (started > until) {
		sums->before_ns = until;
		sums->from_ns = started;
		return now - started;
	}
	sum = now - until;
	gap = sums->before_ns > started ? sums->before_ns : started;
	if (gap < from) {
		sums->from_ns = gap;
		sum += from - gap;
	}
	return sum;
}

/*
 * Adds the time since a request or bio started, in nanoseconds. The sum over the
 * requests of a cgroup, divided by the elapsed time, is its mean number of requests
 * in the scheduler and on the disk.
 */
static __always_inline void add_time(struct charged *sums, __u64 started)
{
	__u64 now = bpf_ktime_get_ns();

	if (now <= started)
		return;
	__sync_fetch_and_add(&sums->outstanding_ns, now - started);
	__sync_fetch_and_add(&sums->busy_ns, newly_busy(sums, started, now));
}

/*
 * Adds the time for which a request was outstanding. It is added once, with the last
 * bytes of the request. The kernel records no start time if neither statistics nor a
 * scheduler need it.
 */
static __always_inline void add_outstanding(struct request *rq, struct charged *sums, __u64 bytes)
{
	__u64 started = rq->start_time_ns;

	if (started && bytes >= rq->__data_len)
		add_time(sums, started);
}

/*
 * Says that the first bio of a request on a disk that is not observed is a journal
 * write. The function is not static, so that the verifier checks it once.
 */
__noinline int begins_with_journal(__u64 first)
{
	struct bio *bio = (struct bio *)first;
	struct noted *noted;
	void *buffer;
	__u64 vectors, ends;

	if (notes) {
		vectors = (__u64)BPF_CORE_READ(bio, bi_io_vec);
		noted = bpf_map_lookup_elem(&noted_bios, &vectors);
		if (noted && is_about(noted, first))
			return noted->class >> KIND_SHIFT == KIND_JOURNAL;
	}
	if (!buffer_ends || !bios_name_device())
		return false;
	ends = (__u64)BPF_CORE_READ(bio, bi_end_io);
	if (ends != buffer_ends && ends != commit_ends)
		return false;
	buffer = BPF_CORE_READ(bio, bi_private);
	return is_of_commit(ends, buffer) ||
	       is_made_by_jbd2(buffer, journaled_by(BPF_CORE_READ(bio, bi_bdev, bd_dev)), false);
}

/*
 * Returns the sums of a cgroup on a disk, and notes in them whether the disk is
 * observed; or NULL if nothing is counted. On disks that are not observed only journal
 * writes are counted, because the journal of an observed file system may be there.
 */
static __noinline struct charged *prepare_charged(__u32 disk, __u64 charged, __u64 first,
						  bool writes)
{
	struct charged *sums = known_charged(disk, charged);
	__u32 now = generation, observed;

	if (sums && sums->generation == now)
		return sums;
	observed = !!bpf_map_lookup_elem(&disks, &disk);
	if (!observed && (!writes || !begins_with_journal(first)))
		return NULL;
	sums = find_charged(disk, charged);
	if (!sums)
		return NULL;
	sums->observed = observed;
	sums->generation = now;
	return sums;
}

/*
 * Returns the place of the file system of the device that a bio names; NULL if it has
 * none.
 */
static __always_inline struct filesystem_place *place_of_bio(struct bio *bio)
{
	struct filesystem_place *place;
	__u32 dev;

	if (!bios_name_device())
		return NULL;
	dev = bio->bi_bdev->bd_dev;
	place = filesystem_place(dev);
	return is_its(place, dev) ? place : NULL;
}

/* Says that all that a request has written is in the log of a journal. */
static __always_inline bool is_in_log(struct filesystem_place *place, struct request *rq,
				      __u64 bytes)
{
	__u64 at = rq->__sector - place->log.from, sectors = place->log.sectors;

	return at < sectors && at + (bytes >> 9) <= sectors;
}

static __always_inline __u32 disk_of(struct request *rq)
{
	struct gendisk *gendisk;

	if (bpf_core_field_exists(rq->q->disk))
		gendisk = rq->q->disk;
	else
		gendisk = ((struct request___with_disk *)rq)->rq_disk;
	return disk_number(gendisk);
}

/*
 * Counts a request of any kind to which cgroup the kernel charged the bytes, exactly as
 * /sys/block counts bytes. It also counts what was written: the journal, metadata in
 * place, or file data that is charged to the root cgroup. All bios of a request belong to
 * one cgroup (blk_cgroup_mergeable, block/blk-cgroup.h).
 */
static __always_inline int complete_any(struct request *rq, __u64 bytes)
{
	__u32 op = rq->cmd_flags & OP_MASK, disk = disk_of(rq);
	struct filesystem_place *place;
	struct bio *bio = rq->bio;
	struct charged *sums;
	bool reads, writes;
	__u64 charged;

	reads = op == REQ_OP_READ;
	writes = op == REQ_OP_WRITE;
	if (!reads && !writes && op != REQ_OP_WRITE_ZEROES)
		return 0;
	charged = as_unknown(charged_cgroup(bio));
	sums = placed_charged(disk, charged);
	if (!sums || sums->generation != generation) {
		sums = prepare_charged(disk, charged, as_number(bio), writes);
		if (!sums)
			return 0;
	}
	if (!sums->observed && (!writes || !begins_with_journal(as_number(bio))))
		return 0;
	place = place_of_bio(bio);
	if (place && sums->observed) {
		place->disk = disk;
		place->generation = generation;
		if (writes && charged == ROOT_CGROUP && is_in_log(place, rq, bytes))
			place->log.blkg = (__u64)bio->bi_blkg;
	}
	if (writes)
		add_written_request(rq, bio, sums, disk, charged, bytes);
	if (!sums->observed)
		return 0;
	__sync_fetch_and_add(reads ? &sums->read_bytes : &sums->write_bytes, bytes);
	add_outstanding(rq, sums, bytes);
	return 0;
}

/*
 * Counts a request of a file system on an observed disk, if it is file data that the kernel
 * charges to its writer, in one bio, as most are. The function of its end says so, also
 * where bios are noted: none of these is.
 */
static __always_inline bool complete_data(struct request *rq, struct filesystem_place *place,
					  __u64 bytes)
{
	struct bio *bio = rq->bio;
	__u64 ends = (__u64)bio->bi_end_io, charged;
	struct charged *sums;

	if (!ends || ends != file_ends || bio != rq->biotail)
		return false;
	charged = charged_cgroup(bio);
	if (charged == ROOT_CGROUP)
		return false;
	sums = placed_charged(place->disk, charged);
	if (!sums)
		return false;
	__sync_fetch_and_add(&sums->write_bytes, bytes);
	add_outstanding(rq, sums, bytes);
	return true;
}

/* A function so that requests for a log, which do not come here, have the registers. */
static __noinline int complete_other(struct request *rq, struct filesystem_place *place,
				     __u64 bytes)
{
	if (place && complete_data(rq, place, bytes))
		return 0;
	return complete_any(rq, bytes);
}

/* Adds the time of a cache flush since it started. */
static __always_inline void add_flush(struct charged *sums, __u64 started)
{
	__u64 now;

	/* What a request or another flush covers counts once. */
	if (started < sums->until_ns)
		started = sums->until_ns;
	if (started < sums->flushed_ns)
		started = sums->flushed_ns;
	now = bpf_ktime_get_ns();
	if (now <= started)
		return;
	sums->flushed_ns = now;
	__sync_fetch_and_add(&sums->flush_ns, now - started);
}

/*
 * Adds the time of a cache flush that a cgroup waits for: that of a request without data,
 * which fsync sends if it has nothing to commit. The requests that the kernel makes of it for
 * the disk have no bio.
 */
static __noinline int complete_flush(struct request *rq, struct bio *bio)
{
	struct charged *sums = known_charged(disk_of(rq), as_unknown(charged_cgroup(bio)));
	__u64 started = rq->start_time_ns;

	if (sums && sums->observed && started && (rq->cmd_flags & OP_MASK) == REQ_OP_WRITE)
		add_flush(sums, started);
	return 0;
}

/*
 * Runs when a request is completed. An fsync has two requests for the log and one for its
 * data. They take a shorter way: on Linux 6.1 each pointer that is followed takes seven
 * instructions. What is written to the log and charged to the root cgroup is in one sum of
 * the file system, and its time is not counted.
 */
static __always_inline int account_completion(struct request *rq, __u64 bytes)
{
	struct filesystem_place *place;
	struct bio *bio = rq->bio;

	if (!bio)
		return 0;
	if (!bytes)
		return bio->bi_io_vec ? 0 : complete_flush(rq, bio);
	if ((rq->cmd_flags & OP_MASK) != REQ_OP_WRITE)
		return complete_other(rq, NULL, bytes);
	place = place_of_bio(bio);
	if (!place || place->generation != generation)
		return complete_other(rq, NULL, bytes);
	if (!is_in_log(place, rq, bytes))
		return complete_other(rq, place, bytes);
	if (place->log.blkg != (__u64)bio->bi_blkg)
		return complete_other(rq, NULL, bytes);
	__sync_fetch_and_add(&place->log.bytes, bytes);
	__sync_fetch_and_add(&place->filesystem.committer.journal_bytes, bytes);
	place->filesystem.committer.journal_disk = place->disk;
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, __u64 error, __u64 bytes)
{
	return account_completion(rq, (__u32)bytes);
}

#endif
