/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The walk over the records of a partition, and nvj_walk, which passes them to
 * a callback. All records between the bounds had flags before the last commit
 * was sealed. So a record that is not whole is damage, and not the result of a
 * crash. Nothing after it can be found, because only that record says where the
 * next one starts.
 */
#include "walk.h"
#include "hash.h"

struct nvj_walker *nvj_walker_new(const struct nvj_platform *platform, const struct nvj_scan *scan,
				  uint32_t partition)
{
	struct nvj_walker *w = platform->allocate(platform->context, sizeof(*w));

	if (!w)
		return NULL;
	w->scan = scan;
	w->only = NVJ_ALL_PARTITIONS;
	w->hash_low = 0;
	w->hash_size = NVJ_ALL_HASHES;
	nvj_walker_start(w, partition);
	return w;
}

void nvj_walker_free(const struct nvj_platform *platform, struct nvj_walker *w)
{
	platform->release(platform->context, w, sizeof(*w));
}

void nvj_walker_start(struct nvj_walker *w, uint32_t partition)
{
	w->partition = partition;
	w->position = w->scan->low[partition];
}

/*
 * Copies count lines out of the ring, continuing at its start if necessary.
 * False: the memory cannot be read.
 */
static bool read_lines(const struct nvj_walker *w, uint64_t position, void *to, uint64_t count)
{
	const struct nvj_geometry *g = &w->scan->geometry;
	uint64_t to_end = nvj_lines_to_end(g, position);
	uint64_t first = count < to_end ? count : to_end;

	return nvj_copy_out(g->read, to, nvj_line_at(g, w->partition, position),
			    first * NVJ_LINE_BYTES) &&
	       (count == first || nvj_copy_out(g->read, (uint8_t *)to + first * NVJ_LINE_BYTES,
					       nvj_line_at(g, w->partition, position + first),
					       (count - first) * NVJ_LINE_BYTES));
}

static bool skips(const struct nvj_walker *w, uint64_t block)
{
	if (w->only != NVJ_ALL_PARTITIONS && block % w->scan->geometry.partitions != w->only)
		return true;
	return w->hash_size != NVJ_ALL_HASHES &&
	       (nvj_hash(block) >> 32) - w->hash_low >= w->hash_size;
}

/* Reads a record and checks it. Of a record that is skipped, only its header. */
static int read_record(struct nvj_walker *w, bool *skipped)
{
	const struct nvj_scan *s = w->scan;
	uint64_t end = s->high[w->partition];

	if (w->position >= end)
		return 0;
	if (!read_lines(w, w->position, &w->header, 1))
		return NVJ_EUCLEAN;
	/*
	 * When the last commit was sealed, the transaction after it was running
	 * at most. A record of a higher one would not be covered by the next
	 * anchor.
	 */
	if (!nvj_record_plausible(&s->geometry, w->partition, w->position, &w->header,
				  s->last_tid + 1))
		return NVJ_EUCLEAN;
	/*
	 * After an upgrade, records of version 1 may be here, but none of them
	 * counts.
	 */
	if (s->geometry.sequenced && !w->header.sequence && nvj_scan_counts(s, w->header.tid))
		return NVJ_EUCLEAN;
	/* Here lines is 1..65. */
	if (w->header.lines > end - w->position)
		return NVJ_EUCLEAN;
	*skipped = skips(w, w->header.block);
	if (*skipped) {
		w->position += w->header.lines;
		return 1;
	}
	if (!read_lines(w, w->position + 1, w->lines, w->header.lines - 1u))
		return NVJ_EUCLEAN;
	if (w->header.crc != nvj_record_crc_packed(s->geometry.seed, &w->header, w->lines))
		return NVJ_EUCLEAN;
	w->position += w->header.lines;
	return 1;
}

int nvj_walker_next(struct nvj_walker *w)
{
	bool skipped;
	int next;

	do
		next = read_record(w, &skipped);
	while (next > 0 && skipped);
	return next;
}

int nvj_walker_read(struct nvj_walker *w, uint64_t position)
{
	bool skipped = false;
	int next;

	w->position = position;
	next = read_record(w, &skipped);
	return next > 0 && skipped ? 0 : next;
}

/* *damaged: the walk ended at a damaged record. */
static int walk_partition(const struct nvj_platform *platform, const struct nvj_scan *s,
			  uint32_t partition, nvj_visit *visit, void *context, bool *damaged)
{
	struct nvj_walker *w = nvj_walker_new(platform, s, partition);
	int next, result = 0;

	if (!w)
		return NVJ_ENOMEM;
	while (!result && (next = nvj_walker_next(w)) != 0) {
		if (next < 0) {
			*damaged = true;
			break;
		}
		/*
		 * Records of transactions that are at home are here only
		 * because a later transaction started among them.
		 */
		if (w->header.tid > s->tail_tid)
			result = visit(context, partition, &w->header, w->lines,
				       nvj_scan_counts(s, w->header.tid));
	}
	nvj_walker_free(platform, w);
	return result;
}

int nvj_walk(const struct nvj_region *region, const struct nvj_platform *platform, nvj_visit *visit,
	     void *context)
{
	struct nvj_report report = {0};
	struct nvj_scan *s;
	bool damaged = false;
	int result = nvj_scan_begin(region, platform, &report, &s);

	if (result)
		return result;
	for (uint32_t i = 0; i < s->geometry.partitions && !result; i++)
		result = walk_partition(platform, s, i, visit, context, &damaged);
	nvj_scan_end(platform, s);
	return !result && damaged ? NVJ_EUCLEAN : result;
}
