/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints like those of jbd2, in a system of their own: jbd2nvj. tid is the
 * journal's own number of 48 bits; times are in milliseconds. The BPF programs
 * of daybook (internal/journal/bpf/nvjournal.h) read numbers and pointers to
 * the kernel's own types, because they do not know the types of this module.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM jbd2nvj

#if !defined(NVJK_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define NVJK_TRACE_H

#include <linux/tracepoint.h>

struct bio;
struct jbd2_journal_handle;

/* In the layout of the kernel's own events. */
/* clang-format off */
TRACE_EVENT(jbd2nvj_handle_start,
	TP_PROTO(dev_t dev, u64 tid, const struct jbd2_journal_handle *handle),
	TP_ARGS(dev, tid, handle),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
		__field(unsigned int, type)
		__field(unsigned int, line_no)
		__field(unsigned int, requested_blocks)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
		__entry->type = handle->h_type;
		__entry->line_no = handle->h_line_no;
		__entry->requested_blocks = handle->h_requested_credits;
	),
	TP_printk("dev %d,%d tid %llu type %u line_no %u requested_blocks %u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid, __entry->type,
		  __entry->line_no, __entry->requested_blocks)
);

/*
 * The handle ends. logged_lines: lines of 64 bytes that it has logged, including
 * headers and revokes. Records that are written later are not in it.
 */
TRACE_EVENT(jbd2nvj_handle_stats,
	TP_PROTO(dev_t dev, u64 tid, const struct jbd2_journal_handle *handle, unsigned int dirtied_blocks,
		 unsigned int logged_lines),
	TP_ARGS(dev, tid, handle, dirtied_blocks, logged_lines),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
		__field(unsigned int, type)
		__field(unsigned int, line_no)
		__field(unsigned int, interval)
		__field(unsigned int, sync)
		__field(unsigned int, requested_blocks)
		__field(unsigned int, dirtied_blocks)
		__field(unsigned int, logged_lines)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
		__entry->type = handle->h_type;
		__entry->line_no = handle->h_line_no;
		__entry->interval = jiffies_to_msecs(jiffies - handle->h_start_jiffies);
		__entry->sync = handle->h_sync;
		__entry->requested_blocks = handle->h_requested_credits;
		__entry->dirtied_blocks = dirtied_blocks;
		__entry->logged_lines = logged_lines;
	),
	TP_printk("dev %d,%d tid %llu type %u line_no %u interval %u sync %u requested_blocks %u dirtied_blocks %u logged_lines %u",
		  MAJOR(__entry->dev), MINOR(__entry->dev), __entry->tid, __entry->type,
		  __entry->line_no, __entry->interval, __entry->sync, __entry->requested_blocks,
		  __entry->dirtied_blocks, __entry->logged_lines)
);

/* The record of a block that the handle has changed will be written later. */
TRACE_EVENT(jbd2nvj_log_later,
	TP_PROTO(dev_t dev, u64 tid, u64 block),
	TP_ARGS(dev, tid, block),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
		__field(u64, block)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
		__entry->block = block;
	),
	TP_printk("dev %d,%d tid %llu block %llu", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->tid, __entry->block)
);

/* It is written; 0 lines: the block is as it was. The thread may be any. */
TRACE_EVENT(jbd2nvj_logged_later,
	TP_PROTO(dev_t dev, u64 tid, u64 block, unsigned int logged_lines),
	TP_ARGS(dev, tid, block, logged_lines),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
		__field(u64, block)
		__field(unsigned int, logged_lines)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
		__entry->block = block;
		__entry->logged_lines = logged_lines;
	),
	TP_printk("dev %d,%d tid %llu block %llu logged_lines %u", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->tid, __entry->block, __entry->logged_lines)
);

#define NVJK_EVENT(event) jbd2nvj_##event
#include "../mount/events.h"
/* clang-format on */

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH jbd2
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
