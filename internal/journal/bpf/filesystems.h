/* SPDX-License-Identifier: GPL-2.0 */
/*
 * File systems: their instances, their transactions, and the commits that have ended.
 */
#ifndef DAYBOOK_FILESYSTEMS_H
#define DAYBOOK_FILESYSTEMS_H

#include "lost.h"
#include "places.h"

/* The file system that a device number means at present; see instances.h. */
struct instance {
	__u64 superblock;
	__u32 state;
	__u32 pad;
};

/*
 * Says that `instances` has entries. Until the first file system is unmounted,
 * the programs look nothing up there.
 */
__u32 any_instance;

/*
 * device -> its file system; the entry is made when the first file system ends
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct instance);
} instances SEC(".maps");

struct dirtied_key {
	__u32 dev;
	__u32 tid;
	__u64 cgroup;
	__u32 instance;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct dirtied_key);
	__type(value, __s64);
} dirtied SEC(".maps");

/* A handle that may restart, and what of it is counted in its transaction. */
struct handle_seen {
	__u64 handle;
	__u64 owner;
	__u32 tid;
	__s32 dirtied;
	__u32 dev;
	__u32 pad;
};

/*
 * thread -> its handle. If another entry were evicted, the blocks of its handle would count
 * twice. A task whose handle's end was not seen leaves its entry, for the next handle of
 * that number of a process.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct handle_seen);
} seen SEC(".maps");

/*
 * A jbd2 thread. tid is 0 between two commits. superblock says that it is about
 * to write the superblock of the journal, which others write, too.
 */
struct committer {
	__u64 journal; /* whose device was looked at, see note_external(); 0: none */
	__u64 journal_bytes;
	__u64 started_ns;
	__u64 forced_by;
	__u32 journal_disk;
	__u32 tid;
	__u32 instance;
	__u32 superblock;
};

/* The sync that waits for a commit to start. */
struct forcer {
	__u64 cgroup;
	__u64 expires_ns;
};

#define PARTS 4 /* of further cgroups the blocks are in the map `dirtied` */

/* The blocks that a cgroup dirtied in one transaction. */
struct part {
	__u64 cgroup;
	__s64 blocks;
};

/*
 * Who dirtied a transaction that has not ended. id: its instance and tid; 0: none. serial:
 * whose part is the first, as serial_of() says; 0: not known. Such a part stays for the next
 * transaction, without blocks. It is not known while the file system is unmounted, so
 * that its instance is known, too.
 */
struct transaction {
	__u64 id;
	__u64 serial;
	__u32 instance; /* where serial is known */
	__u32 pad;
	struct part parts[PARTS];
};

/*
 * The file system of a device. The transaction with number N is in
 * transactions[N & 1]: jbd2 starts transaction N + 2 when N has ended.
 */
struct filesystem {
	struct committer committer;
	struct forcer forcer;
	struct transaction transactions[2];
	__u32 stale; /* a handle found a transaction in its place whose end was not seen */
	__u32 pad;
};

/*
 * Where the blocks of a journal are that only its jbd2 thread writes, in sectors of the
 * disk. User space finds it, sets `from` before `sectors`, and takes it back if
 * `ended` has changed meanwhile.
 */
struct log {
	__u64 from;
	__u64 sectors; /* 0: not known */
	/* written there, and charged to the root cgroup; in no other sum of the disk */
	__u64 bytes;
	__u64 blkg;  /* of the root cgroup on the disk; 0: not known */
	__u32 ended; /* how many file systems of the device have ended */
	__u32 pad;
};

/* Never freed. */
struct filesystem_place {
	__u32 dev;        /* 0: free */
	__u32 disk;       /* of the device, which is observed */
	__u32 generation; /* in that one; 0: in none */
	__u32 pad;
	struct log log;
	struct filesystem filesystem;
};

/* Says that `externals` has entries. */
__u32 any_external;

/*
 * The device of a journal that is not on its file system's device -> that device.
 * On kernels whose bios do not name their device: process ID of a jbd2 thread ->
 * device of its file system.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} externals SEC(".maps");

/* device -> its file system; kept when it is unmounted */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct filesystem);
} filesystems SEC(".maps");

/* User space writes into it, too. */
struct filesystem_place filesystem_places[1 << FILESYSTEM_PLACES_LOG2];

struct filesystem fresh_filesystem; /* the value of a new entry */

/* How many entries `seen` has. Handles write it: not next to what each event reads. */
__u32 handles_noted;

struct commit {
	__u32 dev;
	__u32 tid;
	__u32 blocks_logged;
	__u32 handles;
	__u64 journal_bytes;
	__u64 duration_ns;
	__u64 forced_by;
	__u32 journal_disk;
	__u32 instance;
	struct part parts[PARTS];
};

/* A record in the array of commits that have ended; number: from 1 on. */
struct ended_commit {
	struct commit commit;
	__u64 number;
};

/* for the Go types, which are generated from the BTF of this object */
const struct commit *emit_commit __attribute__((unused));

/*
 * The commits that have ended since user space read them, one after the other in a ring:
 * to write one here takes half of the instructions that a ring buffer takes. User space
 * reads them in order, up to one that is not complete. The programs do not use the last
 * RESERVED entries, because each processor can take one more than there is space for. The
 * compilation for older kernels, which has no atomic operations, uses the ring buffer.
 */
#define ENDED_COMMITS 16384 /* a power of 2 */
#define RESERVED 4096

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ENDED_COMMITS);
	__type(key, __u32);
	__type(value, struct ended_commit);
} ended_commits SEC(".maps");

__u64 commits_ended; /* the number of the last one */
__u64 commits_read;  /* user space sets it */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 21);
} commits SEC(".maps");

static __always_inline struct filesystem_place *filesystem_place(__u32 dev)
{
#ifdef UNTYPED_TASK
	return NULL;
#else
	struct filesystem_place *place = &filesystem_places[place_of(dev, FILESYSTEM_PLACES_LOG2)];

	barrier_var(place); /* else clang computes it again for each field */
	return place;
#endif
}

/*
 * Says that the place is the file system's. Where this is tested once, clang makes no
 * pointer to a field that may be NULL, which the verifier does not follow.
 */
static __always_inline bool is_its(struct filesystem_place *place, __u32 dev)
{
#ifdef UNTYPED_TASK
	return false;
#else
	return place->dev == dev;
#endif
}

/* Returns NULL if nothing is known of the file system. */
static __always_inline struct filesystem *known_filesystem(__u32 dev)
{
	struct filesystem_place *place = filesystem_place(dev);

	if (is_its(place, dev))
		return &place->filesystem;
	return bpf_map_lookup_elem(&filesystems, &dev);
}

/*
 * Makes the entry of a file system whose place is not its own. The function is not
 * static, so that the verifier checks it once.
 */
__noinline int make_filesystem(__u32 dev)
{
#ifndef UNTYPED_TASK
	struct filesystem_place *place = filesystem_place(dev);
	__u32 now;

	if (place) {
		now = __sync_val_compare_and_swap(&place->dev, 0, dev);
		if (!now || now == dev)
			return 0;
	}
#endif
	bpf_map_update_elem(&filesystems, &dev, &fresh_filesystem, BPF_NOEXIST);
	return 0;
}

/* The same for a file system without a place. */
static __noinline struct filesystem *find_unplaced(__u32 dev)
{
	struct filesystem *fs = known_filesystem(dev);

	if (fs)
		return fs;
	make_filesystem(dev);
	fs = known_filesystem(dev);
	if (!fs)
		count_lost(LOST_INSTANCE);
	return fs;
}

/* Returns NULL if the map is full. */
static __always_inline struct filesystem *find_filesystem(__u32 dev)
{
	struct filesystem_place *place = filesystem_place(dev);

	if (is_its(place, dev))
		return &place->filesystem;
	return find_unplaced(dev);
}

#endif
