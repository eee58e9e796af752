// SPDX-License-Identifier: GPL-2.0
/*
 * This object counts how often each cgroup makes the system calls that change
 * metadata (paper 1, sections 3.2 and 4.1). It also sees what perf in the paper
 * could not see: arguments, results, and the file system.
 *
 * A call is recorded when it is entered. If the same task stops a jbd2 handle
 * during the call, the call changed metadata, and the handle identifies the
 * file system. The call is counted when it returns without an error. So a call
 * that fails, changes nothing, or works on another type of file system does not
 * count. Writes to ext4 are the exception: they count without a handle, because
 * the paper gives a cost for each write, although many writes change no
 * metadata. Through overlayfs they do not count without a handle: the handle
 * identifies the file system below, but the file does not.
 *
 * The Go code (calls_attach.go) attaches the programs to system calls. These
 * are not counted: io_uring, stores through a memory map, 32-bit programs on a
 * 64-bit kernel.
 */
#include "kernel.h"
#include "syscalls.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "tasks.h"

char LICENSE[] SEC("license") = "GPL";

/* In the order of `operations` in calls.go. */
enum operation {
	NOTHING,
	MKDIR,
	CREAT,
	MKNOD,
	TRUNCATE,
	UNLINK,
	WRITE,
	RMDIR,
	RENAME,
	LINK,
	SYMLINK,
	SETXATTR,
	CHMOD,
	FALLOCATE,
	OPEN, /* CREAT, TRUNCATE or NOTHING: known when the call returns */
};

/* The call that a thread is in. */
struct running {
	__u32 operation;
	__u32 dev;
	__u32 open_flags;
};

struct call_key {
	__u64 cgroup;
	__u32 dev;
	__u32 operation;
};

/*
 * thread -> its call. Entries are kept, with NOTHING, so that a call costs
 * little.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct running);
} running SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, struct call_key);
	__type(value, __u64);
} calls SEC(".maps");

/* calls that did not fit into the map */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost_calls SEC(".maps");

static __always_inline void count_lost(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&lost_calls, &zero);

	if (n)
		*n += 1;
}

static __always_inline int enter(__u32 operation, __u32 dev, __u32 open_flags)
{
	struct running now = {.operation = operation, .dev = dev, .open_flags = open_flags};
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct running *call = bpf_map_lookup_elem(&running, &thread);

	/*
	 * NOTHING is written, too: a thread that died in a call left its entry.
	 */
	if (call)
		*call = now;
	else if (operation != NOTHING && bpf_map_update_elem(&running, &thread, &now, BPF_ANY))
		count_lost();
	return 0;
}

#define ENTER(name, operation)                                                                     \
	SEC("tracepoint")                                                                          \
	int enter_##name(struct trace_event_raw_sys_enter *ctx)                                    \
	{                                                                                          \
		return enter(operation, 0, 0);                                                     \
	}

ENTER(mkdir, MKDIR)
ENTER(mknod, MKNOD)
ENTER(truncate, TRUNCATE)
ENTER(unlink, UNLINK)
ENTER(rmdir, RMDIR)
ENTER(rename, RENAME)
ENTER(link, LINK)
ENTER(symlink, SYMLINK)
ENTER(setxattr, SETXATTR)
ENTER(chmod, CHMOD)
ENTER(fallocate, FALLOCATE)

SEC("tracepoint")
int enter_unlinkat(struct trace_event_raw_sys_enter *ctx)
{
	return enter(ctx->args[2] & AT_REMOVEDIR ? RMDIR : UNLINK, 0, 0);
}

static __always_inline int enter_opening(__u32 flags)
{
	if (flags & (O_CREAT | O_TRUNC | O_TMPFILE_BIT))
		return enter(OPEN, 0, flags);
	return enter(NOTHING, 0, 0);
}

SEC("tracepoint")
int enter_creat(struct trace_event_raw_sys_enter *ctx)
{
	return enter_opening(O_CREAT | O_TRUNC);
}

SEC("tracepoint")
int enter_open(struct trace_event_raw_sys_enter *ctx)
{
	return enter_opening((__u32)ctx->args[1]);
}

SEC("tracepoint")
int enter_openat(struct trace_event_raw_sys_enter *ctx)
{
	return enter_opening((__u32)ctx->args[2]);
}

/* struct open_how of include/uapi/linux/openat2.h starts with the flags. */
SEC("tracepoint")
int enter_openat2(struct trace_event_raw_sys_enter *ctx)
{
	__u64 flags = 0;

	if (bpf_probe_read_user(&flags, sizeof(flags), (void *)ctx->args[2]))
		flags = O_CREAT | O_TRUNC; /* the structure is not in memory: the result decides */
	return enter_opening((__u32)flags);
}

static __always_inline struct file *file_of(__u32 fd)
{
	struct task_struct___files *task = (struct task_struct___files *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL;

	if (fd >= BPF_CORE_READ(table, max_fds))
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + fd);
	return file;
}

static __always_inline int enter_writing(__u32 fd)
{
	struct file *file = file_of(fd);
	struct inode *inode = file ? BPF_CORE_READ(file, f_inode) : NULL;
	struct super_block *sb;

	if (!inode || (BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
		return enter(NOTHING, 0, 0);
	sb = BPF_CORE_READ(inode, i_sb);
	if (BPF_CORE_READ(sb, s_magic) != EXT4_SUPER_MAGIC)
		return enter(WRITE, 0, 0);
	return enter(WRITE, BPF_CORE_READ(sb, s_dev), 0);
}

SEC("tracepoint")
int enter_write(struct trace_event_raw_sys_enter *ctx)
{
	return enter_writing((__u32)ctx->args[0]);
}

/* copy_file_range and splice */
SEC("tracepoint")
int enter_copy(struct trace_event_raw_sys_enter *ctx)
{
	return enter_writing((__u32)ctx->args[2]);
}

SEC("tp_btf/jbd2_handle_stats")
int BPF_PROG(call_handle, __u64 dev)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct running *call = bpf_map_lookup_elem(&running, &thread);

	if (call && call->operation != NOTHING && !call->dev)
		call->dev = (__u32)dev;
	return 0;
}

/* Returns what an open did. On an existing file, O_CREAT does nothing. */
static __always_inline __u32 opened(__u32 fd, __u32 flags)
{
	struct file *file = file_of(fd);
	__u32 mode = file ? BPF_CORE_READ((struct file___mode *)file, f_mode) : 0;

	if (mode & FMODE_CREATED || flags & O_TMPFILE_BIT)
		return CREAT;
	return flags & O_TRUNC ? TRUNCATE : NOTHING;
}

SEC("tracepoint")
int call_returns(struct trace_event_raw_sys_exit *ctx)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct running *call = bpf_map_lookup_elem(&running, &thread);
	struct call_key key = {};
	__u64 *count, one = 1;
	long result = ctx->ret;

	if (!call || call->operation == NOTHING)
		return 0;
	key.operation = call->operation;
	key.dev = call->dev;
	call->operation = NOTHING;
	if (result < 0 || !key.dev)
		return 0;
	if (key.operation == WRITE && result == 0)
		return 0;
	if (key.operation == OPEN)
		key.operation = opened((__u32)result, call->open_flags);
	if (key.operation == NOTHING)
		return 0;
	key.cgroup = cgroup_of(current_task());
	count = bpf_map_lookup_elem(&calls, &key);
	if (!count && bpf_map_update_elem(&calls, &key, &one, BPF_NOEXIST) == 0)
		return 0;
	if (!count)
		count = bpf_map_lookup_elem(&calls, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		count_lost();
	return 0;
}
