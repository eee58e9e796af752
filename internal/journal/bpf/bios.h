/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bios: what each writes, to which cgroup the kernel charges it, and what is noted of it
 * from its submission to its completion.
 */
#ifndef DAYBOOK_BIOS_H
#define DAYBOOK_BIOS_H

#include "commits.h"
#include "ends.h"
#include "pages.h"

#define OP_MASK 0xff /* REQ_OP_MASK */

enum kind {
	KIND_NONE = 0,
	KIND_JOURNAL = 1,  /* written by a jbd2 thread, except file data */
	KIND_METADATA = 2, /* pages of the block device: checkpoint, writeback */
	KIND_DATA = 3,     /* file data that is charged to the root cgroup */
	KIND_COUNTED = 4,  /* of the journal, and counted on the device above */
};

/*
 * A bio that a completion must recognise; class: see KIND_SHIFT, 0: none. If it
 * was submitted to a device without a request queue (device mapper, md), its
 * clones on the disks below are recognised. early: it was noted before it was
 * submitted, and it is not submitted yet.
 */
struct noted {
	__u64 class;
	__u64 bio;
	__u32 layered;
	__u32 early;
};

/*
 * Says that a device without a request queue is observed, or has a journal. Until
 * then the programs look only at the bios of jbd2 threads when they are
 * submitted.
 */
__u32 layers;

/*
 * Says that `noted_bios` has entries. Until then a completion looks nothing up
 * there.
 */
__u32 notes;

/*
 * The kernel's function that ends the write of file data of ext4; user space sets it with
 * those in ends.h. If all are known, a completed write of a journal is recognised by them,
 * and submissions are observed only where devices lie on each other.
 */
__u64 file_ends;

/*
 * The flag of a bio that has the vector of pages of another (BIO_CLONED), which has no
 * name in CO-RE; user space sets it where devices lie on each other. 0: not known.
 */
__u32 cloned;

/*
 * The vector of pages of a bio -> its class from submission to completion. A
 * clone has the vector of the original. Completion sets the class to 0 and
 * leaves the entry, because the kernel uses the same memory for other bios: to
 * find an entry costs less than to delete it and to insert it again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct noted);
} noted_bios SEC(".maps");

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

static __always_inline struct gendisk *gendisk_of(struct bio *bio)
{
	if (bpf_core_field_exists(bio->bi_bdev))
		return bio->bi_bdev->bd_disk;
	return ((struct bio___with_disk *)bio)->bi_disk;
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

static __always_inline void note_bio(__u64 bio, __u64 vectors, bool layered, bool early, __u32 kind,
				     __u64 value)
{
	struct noted fresh = {
		.class = (__u64)kind << KIND_SHIFT | value,
		.bio = bio,
		.layered = layered,
		.early = early,
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
 * memory is used for another bio (seen_above). A loop device passes vectors
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

/*
 * Returns a typed pointer as a number. The verifier keeps the type of a pointer
 * through every other operation, and such functions as classify() have numbers
 * as arguments. Reading it with a helper call would take more time.
 */
static __always_inline __u64 as_number(struct bio *bio)
{
	return as_unknown((__u64)bio);
}

#endif
