/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs keep and hand over. Sizes are limits on everything: a full
 * map counts its losses (lost), an LRU map forgets the oldest.
 */
#ifndef DAYBOOK_MAPS_H
#define DAYBOOK_MAPS_H

#include "kernel.h"

#include <bpf/bpf_helpers.h>

#define NO_OWNER 0
#define OP_MASK 0xff         /* REQ_OP_MASK */
#define BIOS_PER_REQUEST 512 /* beyond it, data stays in the root cgroup's name */
#define BIOS_PER_RUN 16      /* of them, in one function's loop */

enum kind {
	KIND_NONE = 0,
	KIND_JOURNAL = 1,       /* written by a jbd2 thread, not file data */
	KIND_METADATA = 2,      /* pages of the block device: checkpoint, writeback */
	KIND_DATA = 3,          /* file data written in the root cgroup's name */
	KIND_CHARGED_READ = 4,  /* all reads, in whose name the kernel did them */
	KIND_CHARGED_WRITE = 5, /* all writes, likewise */
	KIND_OUTSTANDING = 6,   /* nanoseconds from request to completion, in whose name */
	KIND_BUSY = 7,          /* nanoseconds with at least one request outstanding, likewise */
};

enum lost {
	LOST_DIRTIED = 0,  /* map `dirtied` full */
	LOST_WRITTEN = 1,  /* map `written` full */
	LOST_COMMIT = 2,   /* ring buffer full */
	LOST_JOURNAL = 3,  /* map `noted_bios` full */
	LOST_LOGGED = 4,   /* map `logged` full */
	LOST_INSTANCE = 5, /* map `instances` full */
	LOST_KINDS = 6,
};

/* The file system that a device number means now; see instances.h. */
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

/* The owner is a cgroup; of KIND_METADATA, the device and its instance. */
struct written_key {
	__u32 disk;
	__u32 kind;
	__u64 charged;
	__u64 owner;
};

struct busy_key {
	__u32 disk;
	__u32 pad;
	__u64 charged;
};

/*
 * The last time span in which a cgroup had a request outstanding, as far as its
 * requests ended, and the end of the span before that one.
 */
struct busy {
	__u64 from_ns;
	__u64 until_ns;
	__u64 before_ns;
};

/* A cgroup's part in a journal in memory. */
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
	__u64 forced; /* of them, those by a process and not by a kernel thread */
};

struct inode_key {
	__u64 ino;
	__u32 dev;
	__u32 instance;
};

/* What a kernel thread is working at. */
struct worker {
	__u64 writepages_owner;
	__u64 conversion_owner;
};

/* A handle as it was last seen before it might restart. */
struct handle_seen {
	__u64 handle;
	__u32 tid;
	__s32 dirtied;
	__u32 dev;
	__u32 instance;
};

/* A jbd2 thread. tid is 0 between two commits. */
struct committer {
	__u64 journal_bytes;
	__u64 started_ns;
	__u64 forced_by;
	__u32 dev;
	__u32 journal_disk;
	__u32 tid;
	__u32 instance;
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
};

/* for the Go types made from this object's BTF */
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

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072);
	__type(key, struct inode_key);
	__type(value, __u64);
} owners SEC(".maps");

/* how often an inode came into `owners`; what user space does not find there nor
 * took out was evicted */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} owners_added SEC(".maps");

/* device -> its file system; an entry comes with the first end of one */
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

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct handle_seen);
} seen SEC(".maps");

/* by process number; the oldest of more than these jbd2 threads is forgotten */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct committer);
} committers SEC(".maps");

/* the least recently used is forgotten: a cgroup that has been idle */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct busy_key);
	__type(value, struct busy);
} busy SEC(".maps");

/* bio -> what classify() says of it, from submission to completion */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} noted_bios SEC(".maps");

/* The sync that waits for a commit to begin. */
struct forcer {
	__u64 cgroup;
	__u64 expires_ns;
};

/* dev -> forcer; an entry is used again, for it costs less than a new one */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct forcer);
} forcers SEC(".maps");

/* the disks that user space asked for; others are passed over */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
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

#endif
