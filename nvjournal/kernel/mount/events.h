/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints that each module has under a name of its own, as
 * jbd2nvj_start_commit and jfsnvj_start_commit. A trace header defines
 * NVJK_EVENT(event), which adds the prefix, and includes this file, each time that
 * it is read. So there is no guard here.
 */

#ifndef NVJK_TRACE_EVENT
/* TRACE_EVENT pastes the name, so the name must be expanded before. */
#define NVJK_TRACE_EVENT(event, proto, args, tstruct, assign, print)                               \
	NVJK_TRACE_NAMED(NVJK_EVENT(event), PARAMS(proto), PARAMS(args), PARAMS(tstruct),          \
			 PARAMS(assign), PARAMS(print))
#define NVJK_TRACE_NAMED(name, proto, args, tstruct, assign, print)                                \
	TRACE_EVENT(name, PARAMS(proto), PARAMS(args), PARAMS(tstruct), PARAMS(assign),            \
		    PARAMS(print))
#endif

/* In the layout of the kernel's own events. */
/* clang-format off */
/* A thread needs the commit of transaction tid: it commits, or waits for another. */
NVJK_TRACE_EVENT(request_commit,
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
 * The committing thread: no handle of transaction tid, or of those that commit
 * with it, is open.
 */
NVJK_TRACE_EVENT(start_commit,
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

/* The committing thread: all file data is on the disk, and the records follow. */
NVJK_TRACE_EVENT(commit_logging,
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
 * A thread that requested a commit of tid (0: all) returns; committed_tid is
 * committed.
 */
NVJK_TRACE_EVENT(end_commit,
	TP_PROTO(dev_t dev, u64 tid, u64 committed_tid),
	TP_ARGS(dev, tid, committed_tid),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tid)
		__field(u64, committed_tid)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tid = tid;
		__entry->committed_tid = committed_tid;
	),
	TP_printk("dev %d,%d tid %llu committed_tid %llu", MAJOR(__entry->dev),
		  MINOR(__entry->dev), __entry->tid, __entry->committed_tid)
);

/* The commit thread has found all transactions up to tail_tid at home. */
NVJK_TRACE_EVENT(checkpoint,
	TP_PROTO(dev_t dev, u64 tail_tid),
	TP_ARGS(dev, tail_tid),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, tail_tid)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->tail_tid = tail_tid;
	),
	TP_printk("dev %d,%d tail_tid %llu", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->tail_tid)
);

/* A block is about to be written to its home. */
NVJK_TRACE_EVENT(write_home,
	TP_PROTO(dev_t dev, u64 block, struct bio *bio),
	TP_ARGS(dev, block, bio),
	TP_STRUCT__entry(
		__field(dev_t, dev)
		__field(u64, block)
	),
	TP_fast_assign(
		__entry->dev = dev;
		__entry->block = block;
	),
	TP_printk("dev %d,%d block %llu", MAJOR(__entry->dev), MINOR(__entry->dev),
		  __entry->block)
);
/* clang-format on */
