/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The class of a bio: is it of a journal, metadata in its place, or file data?
 */
#ifndef DAYBOOK_CLASSES_H
#define DAYBOOK_CLASSES_H

#include "bios.h"

#include <bpf/bpf_endian.h>

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

#endif
