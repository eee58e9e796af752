/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Replay of the blocks of one partition. A block belongs to one partition only,
 * so there is no order between partitions. Within a block the order is that of
 * the sequence numbers. With NVJ_PLACE_CPU the records of a block can be in any
 * ring, so the replay of a partition reads records of all rings. The index of each
 * ring says where they are. Where it has none, because memory was short, other
 * blocks are skipped by their headers.
 *
 * If replay runs twice, or is interrupted and runs again, the result is the
 * same. A record contains the new content of its lines, and not a difference.
 * Each line that any record covers gets the content of the last of them. No
 * other line is changed. So it is harmless if the home contains some of the
 * changes already.
 */
#include "replay.h"
#include "atomic.h"
#include "compiler.h"
#include "replay_images.h"
#include "replay_index.h"
#include "replay_revokes.h"
#include "walk.h"

/*
 * Adds the record that w has just read to the index of the ring, unless memory was
 * short before.
 */
static void index_record(const struct nvj_walker *w, struct nvj_part *part, bool *complete)
{
	const struct nvj_scan *s = w->scan;
	uint64_t at = w->header.position;
	/* A ring has at most 2^30 lines. */
	uint32_t line = (uint32_t)(at - s->low[w->partition]);
	uint32_t partition = (uint32_t)(w->header.block % s->geometry.partitions);

	if (*complete && !nvj_index_add(part->index, partition, line)) {
		part->indexed = at;
		*complete = false;
	}
}

void nvj_examine(const struct nvj_scan *scan, const struct nvj_platform *platform,
		 uint32_t partition, struct nvj_part *part)
{
	struct nvj_walker *w = nvj_walker_new(platform, scan, partition);
	bool complete;
	int next;

	if (!w) {
		part->error = NVJ_ENOMEM;
		return;
	}
	if (scan->geometry.by_cpu && scan->geometry.partitions > 1)
		part->index = nvj_index_new(platform, scan->geometry.partitions);
	part->indexed = scan->low[partition];
	complete = part->index != NULL;
	while ((next = nvj_walker_next(w)) > 0) {
		if (w->header.tid <= scan->tail_tid)
			continue;
		if (!nvj_scan_counts(scan, w->header.tid)) {
			part->uncommitted++;
			continue;
		}
		index_record(w, part, &complete);
		if (w->header.kind == NVJ_REVOKE)
			part->revokes++;
		else
			part->changes++;
	}
	if (complete)
		part->indexed = w->position;
	part->error = next;
	part->ring = partition;
	part->position = w->position;
	part->lines = w->position - scan->low[partition];
	nvj_walker_free(platform, w);
}

/* A replay of the blocks of one partition. */
struct replay {
	const struct nvj_scan *scan;
	const struct nvj_platform *platform;
	struct nvj_walker *walker;
	struct nvj_images *images; /* NULL: only count */
	struct nvj_revokes revokes;
	const struct nvj_part *rings; /* as examined */
	struct nvj_part *part;
	uint32_t partition;  /* of these blocks */
	uint32_t first, end; /* the rings that may have records of them */
};

/*
 * The number that orders the records of a block. Version 1 has the order of the
 * ring. Never 0.
 */
static uint64_t number_of(const struct nvj_scan *s, const struct nvj_disk_record *h)
{
	return s->geometry.sequenced ? h->sequence : h->position + 1;
}

typedef int visitor(struct replay *r, void *argument);

/*
 * The records of a partition are not one after the other in a ring, so the processor
 * does not fetch the next ones from memory by itself. So many records ahead, the
 * header and some lines are fetched.
 */
#define RECORDS_AHEAD 4u
#define LINES_AHEAD 4u

static NVJ_INLINED void fetch_ahead(const struct replay *r, const struct nvj_index_node *node,
				    uint32_t n)
{
	const struct nvj_geometry *g = &r->scan->geometry;
	uint32_t ring = r->walker->partition;
	uint64_t position = r->scan->low[ring];

	if (n >= node->count) {
		n -= node->count;
		node = node->next;
	}
	if (!node || n >= node->count)
		return;
	position += node->line[n];
	for (unsigned i = 0; i < LINES_AHEAD; i++)
		nvj_will_read(nvj_line_at(g, ring, position + i));
}

static int read_indexed(struct replay *r, uint64_t position, visitor *visit, void *argument)
{
	struct nvj_walker *w = r->walker;
	int next = nvj_walker_read(w, position);

	/* When it was examined, it counted and was of this partition. */
	if (next >= 0 && w->header.block % r->scan->geometry.partitions != r->partition)
		return NVJ_EUCLEAN;
	return next > 0 ? visit(r, argument) : next;
}

/*
 * Calls visit for each record of the partition's blocks in the index of the ring
 * where the walker is. Then the walker is where the index ends.
 */
static int each_indexed(struct replay *r, visitor *visit, void *argument)
{
	const struct nvj_part *ring = &r->rings[r->walker->partition];
	uint64_t low = r->scan->low[r->walker->partition];
	const struct nvj_index_node *node = nvj_index_first(ring->index, r->partition);

	for (; node; node = node->next)
		for (uint32_t n = 0; n < node->count; n++) {
			int error;

			fetch_ahead(r, node, n + RECORDS_AHEAD);
			error = read_indexed(r, low + node->line[n], visit, argument);
			if (error)
				return error;
		}
	r->walker->position = ring->indexed;
	return 0;
}

/*
 * Calls visit for each committed record of the partition's blocks in all rings. It
 * ends at an error.
 */
static int each_record(struct replay *r, visitor *visit, void *argument)
{
	struct nvj_walker *w = r->walker;

	for (uint32_t ring = r->first; ring < r->end; ring++) {
		int next = 0;

		nvj_walker_start(w, ring);
		if (r->rings[ring].index)
			next = each_indexed(r, visit, argument);
		while (!next && (next = nvj_walker_next(w)) > 0)
			next = nvj_scan_counts(r->scan, w->header.tid) ? visit(r, argument) : 0;
		if (next)
			return next;
	}
	return 0;
}

static int count_revoke(struct replay *r, void *count)
{
	*(uint64_t *)count += r->walker->header.kind == NVJ_REVOKE;
	return 0;
}

static int put_revoke(struct replay *r, void *unused)
{
	const struct nvj_disk_record *h = &r->walker->header;

	(void)unused;
	if (h->kind == NVJ_REVOKE)
		nvj_revokes_put(&r->revokes, h->block, number_of(r->scan, h));
	return 0;
}

/* The region was sound a moment ago. Damage since then is reported, too. */
static int gather_revokes(struct replay *r)
{
	uint64_t count = 0;
	int error = each_record(r, count_revoke, &count);

	if (!error)
		error = nvj_revokes_init(&r->revokes, r->platform, count);
	return error ? error : each_record(r, put_revoke, NULL);
}

static int apply(struct replay *r, void *records)
{
	const struct nvj_disk_record *h = &r->walker->header;
	uint64_t number = number_of(r->scan, h), *order;
	void *image;
	int error;

	if (h->kind == NVJ_REVOKE || nvj_revokes_has(&r->revokes, h->block, number))
		return 0;
	++*(uint64_t *)records;
	if (!r->images)
		return 0;
	image = nvj_images_get(r->images, h->block, h->mask == NVJ_ALL_LINES, &order, &error);
	if (!image)
		return error;
	nvj_record_apply(h, number, r->walker->lines, image, order);
	return 0;
}

/*
 * Records of a block may be anywhere in the rings. So an image is written home
 * only after all rings were read. If the blocks have more images than there is
 * memory, the rings are read again for each part of the blocks.
 */
static int apply_all(struct replay *r)
{
	struct nvj_walker *w = r->walker;

	while (w->hash_low < NVJ_ALL_HASHES) {
		uint64_t records = 0;
		int error = each_record(r, apply, &records);

		if (error == NVJ_EAGAIN && w->hash_size > 1) {
			nvj_images_clear(r->images);
			w->hash_size /= 2;
			continue;
		}
		if (!error && r->images)
			error = nvj_images_write(r->images);
		if (error)
			return error == NVJ_EAGAIN ? NVJ_ENOMEM : error;
		r->part->records += records;
		w->hash_low += w->hash_size;
	}
	return 0;
}

static uint32_t images_wanted(const struct nvj_scan *scan, uint64_t changes)
{
	uint32_t most = NVJ_REPLAY_IMAGES / scan->geometry.partitions;

	if (most < NVJ_REPLAY_IMAGES_LEAST)
		most = NVJ_REPLAY_IMAGES_LEAST;
	return changes < most ? (uint32_t)changes : most;
}

static int replay(struct replay *r, const struct nvj_part *all, uint32_t partition, bool write)
{
	int error;

	r->walker = nvj_walker_new(r->platform, r->scan, r->first);
	if (!r->walker)
		return NVJ_ENOMEM;
	if (r->scan->geometry.by_cpu)
		r->walker->only = partition;
	if (write) {
		r->images = nvj_images_new(r->platform, partition,
					   images_wanted(r->scan, all->changes));
		if (!r->images)
			return NVJ_ENOMEM;
	}
	error = all->revokes ? gather_revokes(r) : 0;
	return error ? error : apply_all(r);
}

void nvj_replay(const struct nvj_scan *scan, const struct nvj_platform *platform,
		uint32_t partition, bool write, const struct nvj_part *rings,
		const struct nvj_part *all, struct nvj_part *part)
{
	bool by_cpu = scan->geometry.by_cpu;
	const struct nvj_part *found = by_cpu ? all : part;
	struct replay r = {
		.scan = scan,
		.platform = platform,
		.rings = rings,
		.part = part,
		.partition = partition,
		.first = by_cpu ? 0 : partition,
		.end = by_cpu ? scan->geometry.partitions : partition + 1,
	};

	/* Without revokes it is enough to examine the records. */
	if (!found->changes || (!write && !found->revokes)) {
		part->records = part->changes;
		return;
	}
	part->error = replay(&r, found, partition, write);
	if (r.walker) {
		part->ring = r.walker->partition;
		part->position = r.walker->position;
		nvj_walker_free(platform, r.walker);
	}
	if (r.images) {
		part->blocks = nvj_images_written(r.images);
		nvj_images_free(r.images);
	}
	nvj_revokes_free(&r.revokes, platform);
}
