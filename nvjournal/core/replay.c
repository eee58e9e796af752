/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Replay of one partition. A block belongs to one partition only, so there is
 * no order between partitions. Within a partition the order is that of the
 * ring.
 *
 * If replay runs twice, or is interrupted and runs again, the result is the
 * same. A record contains the new content of its lines, and not a difference.
 * Each line that any record covers is written by all these records in their
 * order, up to the last one. No other line is changed. So it is harmless if the
 * home contains some of the changes already.
 */
#include "replay.h"
#include "replay_images.h"
#include "replay_revokes.h"
#include "walk.h"

void nvj_examine(const struct nvj_scan *scan, const struct nvj_platform *platform,
		 uint32_t partition, struct nvj_part *part)
{
	struct nvj_walker *w = nvj_walker_new(platform, scan, partition);
	int next;

	if (!w) {
		part->error = NVJ_ENOMEM;
		return;
	}
	while ((next = nvj_walker_next(w)) > 0) {
		if (w->header.tid <= scan->tail_tid)
			continue;
		if (!nvj_scan_counts(scan, w->header.tid))
			part->uncommitted++;
		else if (w->header.kind == NVJ_REVOKE)
			part->revokes++;
		else
			part->changes++;
	}
	part->error = next;
	part->position = w->position;
	part->lines = w->position - scan->low[partition];
	nvj_walker_free(platform, w);
}

static int gather_revokes(struct nvj_walker *w, struct nvj_revokes *revokes)
{
	int next;

	nvj_walker_rewind(w);
	while ((next = nvj_walker_next(w)) > 0)
		if (w->header.kind == NVJ_REVOKE && nvj_scan_counts(w->scan, w->header.tid))
			nvj_revokes_put(revokes, w->header.block, w->header.position);
	return next;
}

/* If images is NULL, it only counts. */
static int apply_all(struct nvj_walker *w, const struct nvj_revokes *revokes,
		     struct nvj_images *images, struct nvj_part *part)
{
	const struct nvj_disk_record *h = &w->header;
	int next, error = 0;

	nvj_walker_rewind(w);
	while ((next = nvj_walker_next(w)) > 0) {
		void *image;

		if (h->kind == NVJ_REVOKE || !nvj_scan_counts(w->scan, h->tid) ||
		    nvj_revokes_has(revokes, h->block, h->position))
			continue;
		part->records++;
		if (!images)
			continue;
		image = nvj_images_get(images, h->block, h->mask == NVJ_ALL_LINES, &error);
		if (!image)
			return error;
		nvj_record_apply(h, w->lines, image);
	}
	if (next == 0 && images)
		next = nvj_images_write(images);
	return next;
}

static uint32_t images_wanted(const struct nvj_scan *scan, uint64_t changes)
{
	uint32_t most = NVJ_REPLAY_IMAGES / scan->geometry.partitions;

	if (most < NVJ_REPLAY_IMAGES_LEAST)
		most = NVJ_REPLAY_IMAGES_LEAST;
	return changes < most ? (uint32_t)changes : most;
}

void nvj_replay(const struct nvj_scan *scan, const struct nvj_platform *platform,
		uint32_t partition, bool write, struct nvj_part *part)
{
	struct nvj_walker *w;
	struct nvj_images *images = NULL;
	struct nvj_revokes revokes = {0};

	/* Without revokes it is enough to examine the records. */
	if (!part->changes || (!write && !part->revokes)) {
		part->records = part->changes;
		return;
	}
	part->error = NVJ_ENOMEM;
	w = nvj_walker_new(platform, scan, partition);
	if (!w)
		return;
	if (nvj_revokes_init(&revokes, platform, part->revokes))
		goto out;
	if (write) {
		images = nvj_images_new(platform, partition, images_wanted(scan, part->changes));
		if (!images)
			goto out;
	}
	/*
	 * The region was sound a moment ago. Damage since then is reported,
	 * too.
	 */
	part->error = part->revokes ? gather_revokes(w, &revokes) : 0;
	if (!part->error)
		part->error = apply_all(w, &revokes, images, part);
	part->position = w->position;
	if (images) {
		part->blocks = nvj_images_written(images);
		nvj_images_free(images);
	}
out:
	nvj_revokes_free(&revokes, platform);
	nvj_walker_free(platform, w);
}
