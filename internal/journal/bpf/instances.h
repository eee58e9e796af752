/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Instances: which file system a device number means. When a disk is removed,
 * the kernel gives its device number to another disk. mke2fs makes another file
 * system on the same disk. So each mounted file system of a device has a
 * number, its instance. Each key contains it next to the device number.
 *
 * There is no tracepoint for mount or unmount. But the inode of the root
 * directory is referenced as long as a file system is mounted. It is evicted
 * during unmount: after the last data are written, and before the last commit
 * and checkpoint. Events after the eviction belong to the old file system as
 * long as its superblock exists.
 */
#ifndef DAYBOOK_INSTANCES_H
#define DAYBOOK_INSTANCES_H

#include "filesystems.h"
#include "inodes.h"
#include "tasks.h"

/* fs/ext4/ext4.h */
#define EXT4_ROOT_INO 2

/*
 * No file system is mounted, or it was not used yet. The previous superblock
 * may still exist.
 */
#define INSTANCE_ENDED (1U << 31)
/* A device number and an instance fit into the value of a class (bios.h). */
#define INSTANCE_MASK ((1U << 24) - 1)

static __always_inline struct instance *find_instance(__u32 dev)
{
	if (!any_instance)
		return NULL;
	return bpf_map_lookup_elem(&instances, &dev);
}

static __always_inline __u32 instance_of(__u32 dev)
{
	struct instance *instance = find_instance(dev);

	return instance ? instance->state & INSTANCE_MASK : 0;
}

/*
 * Returns the number of references of a superblock. It is 0 when everything is
 * written, and on kernels that have neither field.
 */
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
 * Says whether a file system without a root directory is still being unmounted.
 * It is until everything is written (kill_block_super, __put_super in
 * fs/super.c). The memory may belong to another superblock now, but a mounted
 * superblock has a root directory. The function is not static, so that the
 * verifier checks it once.
 */
__noinline int is_ending(__u64 superblock, __u32 dev)
{
	struct super_block *sb = (struct super_block *)superblock;

	return BPF_CORE_READ(sb, s_dev) == dev && references(sb) > 0 && !BPF_CORE_READ(sb, s_root);
}

/* Says that no known file system is mounted on the device. */
static __always_inline bool is_unmounted(__u32 dev)
{
	struct instance *instance = find_instance(dev);

	return instance && instance->state & INSTANCE_ENDED &&
	       !is_ending(instance->superblock, dev);
}

/*
 * Returns the instance that a handle, or a write to a file, belongs to. If the
 * previous instance has ended, it starts the next one. Two processors that do
 * so at the same time write the same value.
 */
static __always_inline __u32 instance_at_work(__u32 dev)
{
	struct instance *instance = find_instance(dev);
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

/* Runs when the inode of the root directory is evicted: the file system ends. */
static __always_inline void note_end(__u32 dev, __u64 superblock)
{
	struct instance first = {.state = INSTANCE_ENDED, .superblock = superblock}, *instance;
	struct filesystem *fs = known_filesystem(dev);
	struct filesystem_place *place = filesystem_place(dev);

	any_instance = 1;
	instance_at_work(dev); /* for a file system that was mounted and did nothing */
	if (is_its(place, dev)) {
		/* In this order: see struct log. */
		__sync_fetch_and_add(&place->log.ended, 1);
		place->log.sectors = 0;
		place->generation = 0;
	}
	if (fs) {
		fs->forcer.expires_ns = 0;
		fs->committer.journal = 0;
		fs->transactions[0].serial = 0;
		fs->transactions[1].serial = 0;
	}
	/* Its superblock may be the memory of another one later; see write_number(). */
	__sync_fetch_and_add(&owner_changes, 1);
	instance = bpf_map_lookup_elem(&instances, &dev);
	if (instance) {
		instance->superblock = superblock;
		instance->state |= INSTANCE_ENDED;
		return;
	}
	if (bpf_map_update_elem(&instances, &dev, &first, BPF_NOEXIST))
		count_lost(LOST_INSTANCE);
}

#endif
