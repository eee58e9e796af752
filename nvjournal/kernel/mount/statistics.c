// SPDX-License-Identifier: GPL-2.0
/*
 * Counters of the journal since the mount, one name and value per line. A name
 * ends with its unit; a name without a unit is a number of events or objects.
 * docs/ext4nvj-reference.md explains each.
 */
#include "mount.h"

static void line(struct seq_file *seq, const char *name, u64 value)
{
	seq_printf(seq, "%s %llu\n", name, value);
}

static const char *const names[NVJ_LOCK_KINDS] = {
	[NVJ_LOCK_BLOCK] = "block",
	[NVJ_LOCK_BUCKET] = "bucket",
	[NVJ_LOCK_LISTS] = "list",
	[NVJ_LOCK_OTHER] = "other",
};

static void lock_lines(struct seq_file *seq, const struct nvj_statistics *e)
{
	for (unsigned int kind = 0; kind < NVJ_LOCK_KINDS; kind++) {
		seq_printf(seq, "%s_lock_waits %llu\n", names[kind], e->lock_waits[kind]);
		seq_printf(seq, "%s_lock_wait_ns %llu\n", names[kind], e->lock_wait_ns[kind]);
	}
}

void nvjk_read_holds(struct nvjk_holds *holds, const struct nvj *nvj,
		     struct nvjk_statistics *statistics)
{
#ifdef NVJ_LOCK_TIMES
	statistics->one_holds = holds->count;
	statistics->one_hold_ns = nvj_ticks_ns(nvj, holds->ticks);
	statistics->one_longest_ns = nvj_ticks_ns(nvj, holds->longest);
	holds->longest = 0;
#endif
}

#ifdef NVJ_LOCK_TIMES
static void hold_line(struct seq_file *seq, const char *name, u64 holds, u64 hold_ns,
		      u64 longest_ns)
{
	seq_printf(seq, "%s_lock_holds %llu\n", name, holds);
	seq_printf(seq, "%s_lock_hold_ns %llu\n", name, hold_ns);
	seq_printf(seq, "%s_lock_longest_ns %llu\n", name, longest_ns);
}

static void hold_lines(struct seq_file *seq, const struct nvjk_statistics *s)
{
	const struct nvj_statistics *e = &s->engine;

	for (unsigned int kind = 0; kind < NVJ_LOCK_KINDS; kind++)
		hold_line(seq, names[kind], e->lock_holds[kind], e->lock_hold_ns[kind],
			  e->lock_longest_ns[kind]);
	hold_line(seq, "one", s->one_holds, s->one_hold_ns, s->one_longest_ns);
}
#else
static void hold_lines(struct seq_file *seq, const struct nvjk_statistics *s)
{
}
#endif

void nvjk_show_statistics(struct seq_file *seq, const struct nvjk_mount *nvj,
			  const struct nvjk_statistics *s)
{
	const struct nvj_statistics *e = &s->engine;

	seq_printf(seq, "device %s\n", nvjk_region_device(nvj->region));
	line(seq, "offset_bytes", nvjk_region_offset(nvj->region));
	line(seq, "size_bytes", nvjk_region(nvj->region)->size_bytes);
	seq_printf(seq, "uuid %pUb\n", nvj->uuid);
	line(seq, "partitions", e->partitions);
	seq_printf(seq, "placement %s\n",
		   nvj->options.placement == NVJ_PLACE_BLOCK ? "block" : "cpu");
	seq_printf(seq, "records %s\n", nvj->options.whole_blocks ? "blocks" : "lines");
	seq_printf(seq, "lock %s\n", nvj->options.one_lock ? "one" : "none");

	line(seq, "handles", e->handles);
	line(seq, "start_waits", e->start_waits);
	line(seq, "start_wait_ns", e->start_wait_ns);
	line(seq, "logged_records", e->records);
	line(seq, "logged_lines", e->record_lines);
	line(seq, "zero_lines", e->zero_lines);
	line(seq, "data_records", e->data_records);
	line(seq, "revokes", e->revokes);
	line(seq, "frozen", e->frozen);
	lock_lines(seq, e);
	hold_lines(seq, s);
	line(seq, "commits", e->transactions);
	line(seq, "commits_merged", e->merged);
	line(seq, "commits_waited", e->commits_waited);
	line(seq, "engine_fences", e->fences);
	line(seq, "region_writes", s->region.writes);
	line(seq, "region_lines", s->region.lines);
	line(seq, "region_fences", s->region.fences);
	line(seq, "region_written_bytes", s->region.lines * NVJ_LINE_BYTES);

	line(seq, "checkpoints", e->checkpoints);
	line(seq, "blocks_home", e->blocks_home);
	line(seq, "disk_writes", s->disk.writes);
	line(seq, "disk_flushes", s->disk.flushes);
	line(seq, "disk_marks", s->disk.marks);
	line(seq, "disk_errors", s->disk.errors);
	line(seq, "data_inodes", s->data_inodes);
	line(seq, "data_flushes", s->data_flushes);

	line(seq, "running_tid", e->running_tid);
	line(seq, "committed_tid", e->committed_tid);
	line(seq, "tail_tid", e->tail_tid);
	line(seq, "checkpoint_lag", e->running_tid - e->tail_tid);
	line(seq, "used_lines", e->used_lines);
	line(seq, "ring_lines", e->ring_lines);
	line(seq, "pinned_buffers", s->pinned_buffers);
	line(seq, "pinned_buffers_all_mounts", s->pinned_all_mounts);
	line(seq, "max_pinned_buffers", s->max_pinned_buffers);
	line(seq, "images_bytes", s->images_bytes);
}
