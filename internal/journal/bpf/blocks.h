/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Block layer: what is written to a disk, to which cgroup the kernel charges
 * it, and which cgroup owns the files.
 */
#ifndef DAYBOOK_BLOCKS_H
#define DAYBOOK_BLOCKS_H

#include "commits.h"
#include "pages.h"

#include <bpf/bpf_endian.h>

/*
 * Returns the inode of the file or block device whose page cache a bio writes,
 * or NULL for direct I/O and kernel buffers.
 */
static __always_inline struct inode *cached_inode(struct bio *bio)
{
	unsigned int index = BPF_CORE_READ(bio, bi_iter.bi_idx);
	struct bio_vec *vectors = BPF_CORE_READ(bio, bi_io_vec);
	struct page *page = NULL;

	if (!vectors)
		return NULL;
	bpf_probe_read_kernel(&page, sizeof(page),
			      (void *)vectors + index * bpf_core_type_size(struct bio_vec) +
				      bpf_core_field_offset(struct bio_vec, bv_page));
	return inode_of_page(page);
}

static __always_inline __u32 disk_number(struct gendisk *disk)
{
	return (__u32)disk->major << MINORBITS | (__u32)disk->first_minor;
}

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
 * bits. The value of KIND_JOURNAL is the device of its file system. The value of KIND_DATA is the
 * owner's cgroup. The value of KIND_METADATA is the block device whose page cache is written, with
 * the instance of that device above it. For a loop device with direct I/O, that block device is the
 * loop device, and not the disk below it.
 */
#define KIND_SHIFT 56
#define VALUE_MASK ((1ULL << KIND_SHIFT) - 1)

#define INSTANCE_SHIFT 32

static __always_inline __u64 pages_of(__u32 dev)
{
	return (__u64)instance_of(dev) << INSTANCE_SHIFT | dev;
}

static __always_inline void note_bio(__u64 bio, __u64 vectors, bool layered, __u32 kind,
				     __u64 value)
{
	struct noted fresh = {
		.class = (__u64)kind << KIND_SHIFT | value,
		.bio = bio,
		.layered = layered,
	};
	struct noted *noted = bpf_map_lookup_elem(&noted_bios, &vectors);

	notes = 1;
	if (noted)
		*noted = fresh;
	else if (bpf_map_update_elem(&noted_bios, &vectors, &fresh, BPF_ANY))
		count_lost(LOST_JOURNAL);
}

/*
 * Says that a bio has the vector of pages of another one. If the flag is not known,
 * each bio with the vector of a noted bio counts as its clone.
 */
static __always_inline bool may_be_clone(__u64 bio)
{
	return !cloned || BPF_CORE_READ((struct bio *)bio, bi_flags) & cloned;
}

/* Says that a note is about a bio, or about one on a device above, of which it is a clone. */
static __always_inline bool is_about(struct noted *noted, __u64 bio)
{
	return noted->class && (noted->bio == bio || (noted->layered && may_be_clone(bio)));
}

/*
 * Returns the class that a bio was noted with, and ends it; 0: none. A bio that
 * has clones is not ended, because each clone completes. Its entry ends when the
 * memory is used for another bio (forget_reused). A loop device passes vectors
 * on, too, but its own bios are no clones.
 */
static __always_inline __u64 take_noted(__u64 bio, __u64 vectors)
{
	struct noted *noted;
	__u64 class;

	if (!notes)
		return 0;
	noted = bpf_map_lookup_elem(&noted_bios, &vectors);
	if (!noted || !is_about(noted, bio))
		return 0;
	class = noted->class;
	if (!noted->layered)
		noted->class = 0;
	return class;
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

/* Since 6.8 jbd2 sets this flag on its own writes. File data never has it. */
static __always_inline bool is_metadata(struct bio *bio)
{
	return bpf_core_enum_value_exists(enum req_flag_bits, __REQ_META) &&
	       bio->bi_opf >> bpf_core_enum_value(enum req_flag_bits, __REQ_META) & 1;
}

/* Returns the class of journal writes on a device. */
static __always_inline __u64 journal_on(__u32 dev)
{
	return (__u64)KIND_JOURNAL << KIND_SHIFT | journaled_by(dev);
}

#ifndef UNTYPED_TASK
/* Gives a pointer a type, so that it is read without a helper call: since 6.2. */
extern void *bpf_rdonly_cast(void *pointer, __u32 type) __ksym __weak;
#endif

/*
 * jbd2 writes the blocks of a commit, but for those with revocations, as buffers
 * with a function of their own. ends is the function that ends a bio, and buffer
 * its private pointer, which is read only if the bio is of a buffer. In Linux 7.2 a buffer
 * has no function, but each bio of a buffer has the one that it is submitted with.
 */
static __always_inline bool is_of_commit(__u64 ends, void *buffer)
{
	if (!bpf_core_field_exists(struct buffer_head___ends, b_end_io))
		return ends == commit_ends;
	if (ends != buffer_ends)
		return false;
#ifndef UNTYPED_TASK
	if (bpf_rdonly_cast) {
		struct buffer_head___ends *typed =
			bpf_rdonly_cast(buffer, bpf_core_type_id_kernel(struct buffer_head___ends));

		return (__u64)typed->b_end_io == commit_ends;
	}
#endif
	ends = 0;
	bpf_core_read(&ends, sizeof(ends), &((struct buffer_head___ends *)buffer)->b_end_io);
	return ends == commit_ends;
}

/*
 * Says that a block of the page cache of a block device belongs to the journal: it
 * has revocations, or is the superblock and the jbd2 thread writes it. Each begins
 * with a number that no other block of ext4 begins with.
 */
static __always_inline bool is_made_by_jbd2(void *buffer, __u32 fs, bool take)
{
	char *data = BPF_CORE_READ((struct buffer_head___ends *)buffer, b_data);
	struct filesystem *of;
	__be32 begin[2] = {};
	__u32 type;

	bpf_probe_read_kernel(begin, sizeof(begin), data);
	if (begin[0] != bpf_htonl(JBD2_MAGIC_NUMBER))
		return false;
	type = bpf_ntohl(begin[1]);
	if (type == JBD2_REVOKE_BLOCK)
		return true;
	if (type != JBD2_SUPERBLOCK_V1 && type != JBD2_SUPERBLOCK_V2)
		return false;
	of = known_filesystem(fs);
	if (!of || !of->committer.superblock)
		return false;
	if (take)
		of->committer.superblock = 0;
	return true;
}

/*
 * The functions that a loop over bios calls are not static, so that the
 * verifier checks each of them once, and not once in each iteration. They have
 * integer arguments only. The verifier treats their results as unknown numbers.
 * So the states of two iterations do not differ in their bounds. Otherwise the
 * verifier of 6.1 takes minutes for one loop.
 */

/* Returns the class of a bio of a completed write. */
__noinline __u64 classify(__u64 bio, __u64 charged)
{
	__u64 noted = take_noted(bio, (__u64)BPF_CORE_READ((struct bio *)bio, bi_io_vec)), owner;
	struct inode *inode;
	void *buffer = NULL;
	__u32 dev, on = 0;
	__u64 ends;

	if (noted)
		return noted;
	if (buffer_ends && bios_name_device()) {
		ends = (__u64)BPF_CORE_READ((struct bio *)bio, bi_end_io);
		if (ends == buffer_ends || ends == commit_ends) {
			buffer = BPF_CORE_READ((struct bio *)bio, bi_private);
			on = BPF_CORE_READ((struct bio *)bio, bi_bdev, bd_dev);
			if (is_of_commit(ends, buffer))
				return journal_on(on);
		}
	}
	inode = cached_inode((struct bio *)bio);
	if (!inode)
		return KIND_NONE;
	if (is_block_device(inode)) {
		if (buffer && is_made_by_jbd2(buffer, journaled_by(on), true))
			return journal_on(on);
		dev = BPF_CORE_READ(inode, i_rdev);
		if (is_unmounted(dev))
			return KIND_NONE; /* mke2fs or the like, charged to its cgroup */
		return (__u64)KIND_METADATA << KIND_SHIFT | pages_of(dev);
	}
	if (charged != ROOT_CGROUP)
		return KIND_NONE;
	owner = owner_of(BPF_CORE_READ(inode, i_ino), BPF_CORE_READ(inode, i_sb, s_dev));
	if (owner == NO_OWNER || owner == ROOT_CGROUP || owner > VALUE_MASK)
		return KIND_NONE;
	return (__u64)KIND_DATA << KIND_SHIFT | owner;
}

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

/*
 * Returns a typed pointer as a number. The verifier keeps the type of a pointer
 * through every other operation, and such functions as classify() have numbers
 * as arguments. Reading it with a helper call would take more time.
 */
static __always_inline __u64 as_number(struct bio *bio)
{
	return as_unknown((__u64)bio);
}

/* Says that the function that ends a bio says what the bio is. */
static __always_inline bool ends_are_known(void)
{
	return !notes && buffer_ends && bios_name_device();
}

/*
 * As classify(). What most bios of a file system are is seen without its helper
 * calls.
 */
static __always_inline __u64 class_of(struct bio *bio, __u64 charged)
{
	__u64 ends = (__u64)bio->bi_end_io;

	if (ends_are_known()) {
		if (ends == file_ends && charged != ROOT_CGROUP)
			return KIND_NONE;
		if (is_of_commit(ends, bio->bi_private))
			return journal_on(bio->bi_bdev->bd_dev);
	}
	return classify(as_number(bio), charged);
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
 * Adds the time for which a request was outstanding, in nanoseconds. The sum
 * over the requests of a cgroup, divided by the elapsed time, is its mean
 * number of requests in the scheduler and on the disk. The time is added once,
 * with the last bytes of the request. The kernel records no start time if
 * neither statistics nor a scheduler need it.
 */
static __always_inline void add_outstanding(struct request *rq, struct charged *sums, __u64 bytes)
{
	__u64 started = rq->start_time_ns, now;

	if (!started || bytes < rq->__data_len)
		return;
	now = bpf_ktime_get_ns();
	if (now <= started)
		return;
	__sync_fetch_and_add(&sums->outstanding_ns, now - started);
	__sync_fetch_and_add(&sums->busy_ns, newly_busy(sums, started, now));
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

/*
 * Adds the time of a cache flush that a cgroup waits for: that of a request without data,
 * which fsync sends if it has nothing to commit. The requests that the kernel makes of it for
 * the disk have no bio.
 */
static __noinline int complete_flush(struct request *rq, struct bio *bio)
{
	struct charged *sums = known_charged(disk_of(rq), as_unknown(charged_cgroup(bio)));
	__u64 started = rq->start_time_ns, now;

	if (!sums || !sums->observed || !started || (rq->cmd_flags & OP_MASK) != REQ_OP_WRITE)
		return 0;
	/* What a request or another flush covers counts once. */
	if (started < sums->until_ns)
		started = sums->until_ns;
	if (started < sums->flushed_ns)
		started = sums->flushed_ns;
	now = bpf_ktime_get_ns();
	if (now <= started)
		return 0;
	sums->flushed_ns = now;
	__sync_fetch_and_add(&sums->flush_ns, now - started);
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

static __always_inline bool is_journal_write(struct bio *bio, __u32 op)
{
	struct inode *inode;

	if (op != REQ_OP_WRITE || !bio->bi_iter.bi_size || !is_committer(current_task()))
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

/* The memory of a bio that was noted is used for another one. */
static __always_inline void forget_reused(struct bio *bio)
{
	__u64 vectors = (__u64)bio->bi_io_vec, key = (__u64)bio;
	struct noted *noted = bpf_map_lookup_elem(&noted_bios, &vectors);

	if (noted && noted->bio == key)
		noted->class = 0;
}

/* Says that the bio is a clone of a noted one, and so for a device below. */
static __always_inline bool is_noted_clone(struct bio *bio)
{
	__u64 vectors = (__u64)bio->bi_io_vec, key = (__u64)bio;
	struct noted *noted = bpf_map_lookup_elem(&noted_bios, &vectors);

	return noted && noted->bio != key && is_about(noted, key) && noted->layered;
}

/*
 * Runs when a bio is submitted, in the context of the writer. A bio of a jbd2
 * thread that is not file data is a journal write. The clones of a bio for a
 * mapped device arrive again for the devices below, perhaps in another task.
 */
static __always_inline int see_submission(struct bio *bio)
{
	__u32 op = bio->bi_opf & OP_MASK, disk;
	struct gendisk *gendisk;
	bool journal, layered;
	__u32 kind = KIND_JOURNAL;
	__u8 *how;

	if (!layers && !is_kernel_thread(current_task()))
		return 0;
	if (layers && is_noted_clone(bio))
		return 0;
	journal = is_journal_write(bio, op);
	if (!journal && !layers)
		return 0;
	/* A journal's bio, too: on a disk without layers it is not noted again below. */
	if (notes && op == REQ_OP_WRITE)
		forget_reused(bio);
	if (bpf_core_field_exists(bio->bi_bdev))
		gendisk = bio->bi_bdev->bd_disk;
	else
		gendisk = ((struct bio___with_disk *)bio)->bi_disk;
	layered = !gendisk->queue->mq_ops;
	if (layered && layers) {
		disk = disk_number(gendisk);
		how = bpf_map_lookup_elem(&disks, &disk);
		if (how && (journal || *how == DISK_OBSERVED)) {
			account_submission(bio, disk, op, journal);
			kind = KIND_COUNTED;
		}
	}
	if (!journal)
		return 0;
	if (layered)
		layers = 1;
	else if (commit_ends)
		return 0; /* its completion is recognised */
	note_bio((__u64)bio, (__u64)bio->bi_io_vec, layered, kind, submitter(bio));
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
