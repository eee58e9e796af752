/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Maps: the state of the programs, and the results for user space. Each map has
 * a maximum size. If a hash map is full, its losses are counted (lost). An LRU
 * map evicts the oldest entry.
 */
#ifndef DAYBOOK_MAPS_H
#define DAYBOOK_MAPS_H

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#define NO_OWNER 0
#define OP_MASK 0xff         /* REQ_OP_MASK */
#define BIOS_PER_REQUEST 512 /* further bios of a request count as charged to the root cgroup */
#define BIOS_PER_RUN 16      /* bios in the loop of one function */
#define TYPED_BIOS 4         /* the first bios of a request, which are read faster */
#define LOG_BIOS 32          /* the most bios of a request that are taken together */

enum kind {
	KIND_NONE = 0,
	KIND_JOURNAL = 1,  /* written by a jbd2 thread, except file data */
	KIND_METADATA = 2, /* pages of the block device: checkpoint, writeback */
	KIND_DATA = 3,     /* file data that is charged to the root cgroup */
	KIND_COUNTED = 4,  /* of the journal, and counted on the device above */
};

enum lost {
	LOST_DIRTIED = 0,  /* map `dirtied` full */
	LOST_WRITTEN = 1,  /* map `written` or `charged_io` full */
	LOST_COMMIT = 2,   /* ring buffer full */
	LOST_JOURNAL = 3,  /* map `noted_bios` full */
	LOST_LOGGED = 4,   /* map `logged` full */
	LOST_INSTANCE = 5, /* map `instances` or `filesystems` full */
	LOST_KINDS = 6,
};

/* The file system that a device number means at present; see instances.h. */
struct instance {
	__u64 superblock;
	__u32 state;
	__u32 pad;
};

struct dirtied_key {
	__u32 dev;
	__u32 tid;
	__u64 cgroup;
	__u32 instance;
	__u32 pad;
};

/*
 * The owner is a cgroup. For KIND_METADATA it is the device and its instance.
 */
struct written_key {
	__u32 disk;
	__u32 kind;
	__u64 charged;
	__u64 owner;
};

struct charged_key {
	__u32 disk;
	__u32 pad;
	__u64 cgroup;
};

/*
 * The I/O of a disk that the kernel charged to one cgroup. All of a request's
 * sums are in one entry, because a lookup costs more than all the additions.
 */
struct charged {
	__u64 read_bytes;
	__u64 write_bytes;
	__u64 journal_bytes;  /* of these, written by jbd2 threads */
	__u64 outstanding_ns; /* from the start to the completion of each request */
	__u64 busy_ns;        /* with at least one outstanding request */
	__u64 flush_ns;       /* with a flush of the disk's cache outstanding, and no request */
	/*
	 * The last time span with an outstanding request, among requests that
	 * have ended, and the end of the span before it.
	 */
	__u64 from_ns;
	__u64 until_ns;
	__u64 before_ns;
	/* The end of the last flush. */
	__u64 flushed_ns;
	/* What `disks` said in that generation; it is not looked up again. */
	__u32 observed;
	__u32 generation;
};

/*
 * A bio that a completion must recognise; class as in blocks.h, 0: none. If it
 * was submitted to a device without a request queue (device mapper, md), its
 * clones on the disks below are recognised.
 */
struct noted {
	__u64 class;
	__u64 bio;
	__u32 layered;
	__u32 pad;
};

/* The part of a cgroup in a journal in memory. */
struct logged_key {
	__u32 dev;
	__u32 instance;
	__u64 cgroup;
};

struct logged {
	__u64 lines;
	__u64 blocks;
	__u64 handles;
	__u64 commits;
	__u64 forced; /* how many of the commits a process did, and not a kernel thread */
};

/* A block that a handle of ext4nvj has changed, and that will be logged later. */
struct waiting_key {
	__u64 block;
	__u64 dev;
};

struct inode_key {
	__u64 ino;
	__u32 dev;
	__u32 instance;
};

/*
 * The inodes that a kernel thread works on; ino 0: none. Their owners are looked up only
 * when a handle of the thread dirtied a block.
 */
struct worker {
	__u64 writeback_ino;
	__u64 conversion_ino;
	__u32 writeback_dev;
	__u32 conversion_dev;
};

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
 * Places: most lookups in a hash map are avoided by an array in front of it. A key
 * has one place in the array, chosen by its hash. The place belongs to the first
 * key that takes it; other keys of the same place are in the hash map. Taking a
 * place needs atomic operations: the compilation for older kernels uses only the
 * hash maps. The arrays are global variables, because to find a place in one takes a
 * third of the instructions that an array map takes.
 */
#ifdef UNTYPED_TASK
#define FILESYSTEM_PLACES_LOG2 0
#define CHARGED_PLACES_LOG2 0
#define WORKER_PLACES_LOG2 0
#else
#define FILESYSTEM_PLACES_LOG2 8
#define CHARGED_PLACES_LOG2 9
#define WORKER_PLACES_LOG2 10
#endif

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

/* The states of a place; user space frees it. */
#define PLACE_FREE 0
#define PLACE_TAKEN 1
#define PLACE_READY 2

struct charged_place {
	__u32 state;
	__u32 disk;
	__u64 cgroup;
	struct charged sums;
};

/* Free while the thread works on no inode. */
struct worker_place {
	__u32 pid; /* 0: free */
	__u32 pad;
	struct worker worker;
};

/* An owner that was looked up, and what it is the owner of; see recent_check(). */
struct recent_owner {
	__u64 owner;
	__u64 check;
};

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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct dirtied_key);
	__type(value, __s64);
} dirtied SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct written_key);
	__type(value, __u64);
} written SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct logged_key);
	__type(value, struct logged);
} logged SEC(".maps");

/*
 * block -> the cgroup whose handle changed it first in its transaction, until it
 * is logged. A mount has 512 of them at most.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct waiting_key);
	__type(value, __u64);
} waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct inode_key);
	__type(value, __u64);
} owners SEC(".maps");

#define RECENT 256 /* a power of 2 */

/* number of an inode -> what a look at its owner found; to look again costs more */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct recent_owner);
} recent_owners SEC(".maps");

/* number of an inode -> which write by its owner was seen; see write_number() */
__u64 recent_writes[RECENT];

/*
 * Counts the beginnings and the ends of changes to `owners`, and the ends of file
 * systems.
 */
__u64 owner_changes = 1;

/*
 * How many inodes were added to `owners`. An inode that user space neither
 * finds there nor deleted itself was evicted from the map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} owners_added SEC(".maps");

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
 * The kernel's functions that end the write of a buffer, of a buffer of a commit,
 * and of file data of ext4. In Linux 7.2 the first is that of buffers that are written
 * alone, as blocks with revocations and the superblock of a journal. User space sets
 * them before it attaches the programs. 0: not known. If all are known, a completed
 * write of a journal is recognised by them, and submissions are observed only where
 * devices lie on each other.
 */
__u64 buffer_ends;
__u64 commit_ends;
__u64 file_ends;

/*
 * The flag of a bio that has the vector of pages of another (BIO_CLONED), which has no
 * name in CO-RE; user space sets it where devices lie on each other. 0: not known.
 */
__u32 cloned;

/* Says that `externals` has entries. */
__u32 any_external;

/* Says that `workers` has entries. */
__u32 any_worker;

/* Says that a kernel thread has synced a file. */
__u32 any_thread_syncs;

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

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct worker);
} workers SEC(".maps");

struct worker_place worker_places[1 << WORKER_PLACES_LOG2];

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

/* How many entries `seen` has. */
__u32 handles_noted;

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

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct charged_key);
	__type(value, struct charged);
} charged_io SEC(".maps");

struct charged_place charged_places[1 << CHARGED_PLACES_LOG2];

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
 * The disks that user space selected, and what is counted there; other disks are
 * ignored. On a device without a request queue that has only the journal of an
 * observed file system, only the journal is counted.
 */
#define DISK_OBSERVED 1
#define DISK_JOURNAL 2

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} disks SEC(".maps");

/* User space adds 1 after it has changed `disks`; 1: never. */
__u32 generation = 1;

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOST_KINDS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline void count_lost(__u32 what)
{
	__u64 *n = bpf_map_lookup_elem(&lost, &what);

	if (n)
		*n += 1;
}

/* Returns the place of a key among 2^bits. */
static __always_inline __u64 place_of(__u64 key, __u32 bits)
{
	return key * 0x9e3779b97f4a7c15ULL >> (64 - bits);
}

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
