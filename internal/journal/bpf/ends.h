/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The functions that end the writes of a journal, by which these are recognised.
 */
#ifndef DAYBOOK_ENDS_H
#define DAYBOOK_ENDS_H

#include "kernel.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/*
 * The kernel's functions that end the write of a buffer, and of a buffer of a commit. In
 * Linux 7.2 the first is that of buffers that are written alone, as blocks with
 * revocations and the superblock of a journal. User space sets them before it attaches
 * the programs. 0: not known.
 */
__u64 buffer_ends;
__u64 commit_ends;

#ifndef UNTYPED_TASK
/* Gives a pointer a type, so that it is read without a helper call: since 6.2. Newer headers have
 * it. */
extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym __weak;
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

#endif
