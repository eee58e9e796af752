/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which file system a device number means. The kernel gives the number to
 * another disk after this one is gone, and mke2fs makes another file system on
 * the same disk. So each mounted file system of a device has a number of its own
 * (its instance), and stands in each key beside the device.
 *
 * There is no tracepoint of a mount or its end. But the root directory's inode is
 * held as long as a file system is mounted, and evicted only at its end: later
 * than the last data is written, and before the last commit and checkpoint. What
 * is seen after that is the old file system's as long as its superblock is there.
 */
#ifndef DAYBOOK_INSTANCES_H
#define DAYBOOK_INSTANCES_H

#include "maps.h"
#include "tasks.h"

/* fs/ext4/ext4.h */
#define EXT4_ROOT_INO 2

/* Not mounted, or not yet used: the superblock before may still be there. */
#define INSTANCE_ENDED (1U << 31)
/* A device and an instance fit into the value of a bio (blocks.h). */
#define INSTANCE_MASK ((1U << 24) - 1)

static __always_inline __u32 instance_of(__u32 dev)
{
	struct instance *instance = bpf_map_lookup_elem(&instances, &dev);

	return instance ? instance->state & INSTANCE_MASK : 0;
}

/* 0 once all is written; also where the kernel has neither field. */
static __always_inline int references(struct super_block *sb)
{
	int count = 0;

	if (bpf_core_field_exists(sb->s_count))
		return BPF_CORE_READ(sb, s_count);
	if (bpf_core_field_exists(((struct super_block___refcount *)sb)->s_passive))
		bpf_probe_read_kernel(
			&count, sizeof(count),
			(void *)sb +
				bpf_core_field_offset(struct super_block___refcount, s_passive));
	return count;
}

/*
 * Is the file system that has lost its root still being taken down? It is until
 * all is written (kill_block_super, __put_super in fs/super.c). The memory may be
 * another superblock's by now, but one that is mounted has a root. The function is
 * not static, so that the verifier checks it once.
 */
__noinline int is_ending(__u64 superblock, __u32 dev)
{
	struct super_block *sb = (struct super_block *)superblock;

	return BPF_CORE_READ(sb, s_dev) == dev && references(sb) > 0 && !BPF_CORE_READ(sb, s_root);
}

/* No file system, as far as is known, is mounted there. */
static __always_inline bool is_unmounted(__u32 dev)
{
	struct instance *instance = bpf_map_lookup_elem(&instances, &dev);

	return instance && instance->state & INSTANCE_ENDED &&
	       !is_ending(instance->superblock, dev);
}

/*
 * The instance that a handle or a write to a file belongs to, which begins with
 * it if the one before has ended. Two processors that begin it at once write the
 * same.
 */
static __always_inline __u32 instance_at_work(__u32 dev)
{
	struct instance *instance = bpf_map_lookup_elem(&instances, &dev);
	__u32 state;

	if (!instance)
		return 0;
	state = instance->state;
	if (state & INSTANCE_ENDED && !is_ending(instance->superblock, dev)) {
		state = (state + 1) & INSTANCE_MASK;
		instance->state = state;
	}
	return state & INSTANCE_MASK;
}

/* An inode is evicted; with the root directory's, the file system ends. */
static __always_inline void note_end(struct inode *inode)
{
	struct instance first = {.state = INSTANCE_ENDED}, *instance;
	__u32 dev;

	if (!inode || BPF_CORE_READ(inode, i_ino) != EXT4_ROOT_INO)
		return;
	dev = BPF_CORE_READ(inode, i_sb, s_dev);
	instance_at_work(dev); /* of one that was mounted and did nothing */
	bpf_map_delete_elem(&forcers, &dev);
	instance = bpf_map_lookup_elem(&instances, &dev);
	if (instance) {
		instance->superblock = (__u64)BPF_CORE_READ(inode, i_sb);
		instance->state |= INSTANCE_ENDED;
		return;
	}
	first.superblock = (__u64)BPF_CORE_READ(inode, i_sb);
	if (bpf_map_update_elem(&instances, &dev, &first, BPF_NOEXIST))
		count_lost(LOST_INSTANCE);
}

#endif
