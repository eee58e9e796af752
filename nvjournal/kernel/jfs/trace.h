/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints, in a system of their own: jfsnvj. tid is the journal's own number
 * of 48 bits. As those of ext4nvj (../jbd2/trace.h), the BPF programs of daybook
 * read them.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM jfsnvj

#if !defined(JFSNVJ_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define JFSNVJ_TRACE_H

#include <linux/fs.h>
#include <linux/tracepoint.h>

struct bio;

/* In the layout of the kernel's own events. */
/* clang-format off */
/*
 * All that a transaction of JFS has changed is logged: lines of 64 bytes,
 * including headers and revokes. inode is the first of those that it commits;
 * NULL: a new page that has a transaction of its own.
 */
TRACE_EVENT(jfsnvj_transaction_stats,
	TP_PROTO(dev_t dev, u64 tid, const struct inode *inode, unsigned int dirtied_blocks,
		 unsigned int logged_lines),
	TP_ARGS(dev, tid, inode, dirtied_blocks, logged_lines),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
		__field(unsigned long, ino)
		__field(unsigned int, dirtied_blocks)
		__field(unsigned int, logged_lines)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
		__entry->ino = inode ? inode->i_ino : 0;
		__entry->dirtied_blocks = dirtied_blocks;
		__entry->logged_lines = logged_lines;
	),
	TP_printk("dev %d,%d tid %llu ino %lu dirtied_blocks %u logged_lines %u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid, __entry->ino,
		  __entry->dirtied_blocks, __entry->logged_lines)
);

/*
 * A transaction of JFS is about to be logged, and may wait for room in the log. Then it
 * has begun.
 */
TRACE_EVENT(jfsnvj_transaction_wait,
	TP_PROTO(dev_t dev),
	TP_ARGS(dev),
	TP_STRUCT__entry(
		__field(dev_t, dev)
	),
	TP_fast_assign(
		__entry->dev = dev;
	),
	TP_printk("dev %d,%d", MAJOR(__entry->dev), MINOR(__entry->dev))
);

TRACE_EVENT(jfsnvj_transaction_start,
	TP_PROTO(dev_t dev, u64 tid),
	TP_ARGS(dev, tid),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
	),
	TP_printk("dev %d,%d tid %llu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid)
);

/*
 * A transaction of JFS waits for a page of inodes that another one has locked; ino is
 * the first inode of that one, or 0. JFS holds the page until that one has logged it.
 */
TRACE_EVENT(jfsnvj_page_wait,
	TP_PROTO(dev_t dev, unsigned long ino),
	TP_ARGS(dev, ino),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned long, ino)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->ino = ino;
	),
	TP_printk("dev %d,%d ino %lu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino)
);

TRACE_EVENT(jfsnvj_page_waited,
	TP_PROTO(dev_t dev),
	TP_ARGS(dev),
	TP_STRUCT__entry(
		__field(dev_t, dev)
	),
	TP_fast_assign(
		__entry->dev = dev;
	),
	TP_printk("dev %d,%d", MAJOR(__entry->dev), MINOR(__entry->dev))
);

/* fsync and its like: begins, has written the file's own data, ends. */
TRACE_EVENT(jfsnvj_sync_file_enter,
	TP_PROTO(struct file *file, int datasync),
	TP_ARGS(file, datasync),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned long, ino)
		__field(int, datasync)
	),
	TP_fast_assign(
		__entry->dev = file_inode(file)->i_sb->s_dev;
		__entry->ino = file_inode(file)->i_ino;
		__entry->datasync = datasync;
	),
	TP_printk("dev %d,%d ino %lu datasync %d", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->ino, __entry->datasync)
);

TRACE_EVENT(jfsnvj_sync_file_written,
	TP_PROTO(const struct inode *inode),
	TP_ARGS(inode),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned long, ino)
	),
	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
	),
	TP_printk("dev %d,%d ino %lu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino)
);

TRACE_EVENT(jfsnvj_sync_file_exit,
	TP_PROTO(const struct inode *inode, int error),
	TP_ARGS(inode, error),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned long, ino)
		__field(int, error)
	),
	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
		__entry->error = error;
	),
	TP_printk("dev %d,%d ino %lu error %d", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->ino, __entry->error)
);

/* A task changes an inode, or the content of its file. */
TRACE_EVENT(jfsnvj_dirty_inode,
	TP_PROTO(const struct inode *inode),
	TP_ARGS(inode),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(unsigned long, ino)
	),
	TP_fast_assign(
		__entry->dev = inode->i_sb->s_dev;
		__entry->ino = inode->i_ino;
	),
	TP_printk("dev %d,%d ino %lu", MAJOR(__entry->dev), MINOR(__entry->dev), __entry->ino)
);

/* The file system is being unmounted: no file is open any more. */
TRACE_EVENT(jfsnvj_put_super,
	TP_PROTO(const struct super_block *sb),
	TP_ARGS(sb),
	TP_STRUCT__entry(
		__field(dev_t, dev)
	),
	TP_fast_assign(
		__entry->dev = sb->s_dev;
	),
	TP_printk("dev %d,%d", MAJOR(__entry->dev), MINOR(__entry->dev))
);

#define NVJK_EVENT(event) jfsnvj_##event
#include "../mount/events.h"
/* clang-format on */

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH jfs
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
