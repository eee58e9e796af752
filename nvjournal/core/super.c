/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The superblock: which of its two copies is sound, and whether its values are
 * possible. After nvj_geometry, no offset that is computed from it is outside
 * of the region.
 */
#include "format.h"

uint32_t nvj_super_crc(const struct nvj_disk_super *super)
{
	struct nvj_disk_super copy = *super;

	copy.crc = 0;
	return nvj_crc32c(~0u, &copy, sizeof(copy));
}

uint32_t nvj_seed_of(const uint8_t uuid[16])
{
	return nvj_crc32c(~0u, uuid, 16);
}

static bool layout_possible(const struct nvj_region *region, const struct nvj_disk_super *s)
{
	uint64_t commit_bytes, ring_bytes;

	if (s->block_bytes != NVJ_BLOCK_BYTES || s->partitions < 1 ||
	    s->partitions > NVJ_MAX_PARTITIONS)
		return false;
	if (s->commits < NVJ_MIN_COMMITS || s->commits > NVJ_MAX_COMMITS ||
	    s->commits & (s->commits - 1))
		return false;
	if (s->commit_lines != nvj_commit_lines(s->partitions))
		return false;
	if (s->ring_lines < NVJ_MIN_RING_LINES || s->ring_lines > NVJ_MAX_RING_LINES)
		return false;
	if (s->seed != nvj_seed_of(s->uuid))
		return false;
	if (s->version > NVJ_OLDEST_FORMAT_VERSION && s->placement != NVJ_PLACE_BLOCK &&
	    s->placement != NVJ_PLACE_CPU)
		return false;

	/* At most 2^16 * 17 * 64 and 2^6 * 2^30 * 2^6: nothing here overflows. */
	commit_bytes = (uint64_t)s->commits * s->commit_lines * NVJ_LINE_BYTES;
	ring_bytes = (uint64_t)s->partitions * s->ring_lines * NVJ_LINE_BYTES;
	if (s->size_bytes > region->size_bytes || s->partition_offset % NVJ_LINE_BYTES)
		return false;
	if (s->partition_offset < NVJ_COMMITS_OFFSET + commit_bytes ||
	    s->partition_offset > s->size_bytes)
		return false;
	return s->size_bytes - s->partition_offset == ring_bytes;
}

int nvj_geometry(const struct nvj_region *region, const struct nvj_disk_super *super,
		 struct nvj_geometry *geometry)
{
	if (!layout_possible(region, super))
		return NVJ_EUCLEAN;
	*geometry = (struct nvj_geometry){
		.base = region->base,
		.size_bytes = super->size_bytes,
		.partition_offset = super->partition_offset,
		.ring_lines = super->ring_lines,
		.partitions = super->partitions,
		.commits = super->commits,
		.commit_lines = super->commit_lines,
		.seed = super->seed,
		.sequenced = super->version > NVJ_OLDEST_FORMAT_VERSION,
		.by_cpu = super->version > NVJ_OLDEST_FORMAT_VERSION &&
			  super->placement == NVJ_PLACE_CPU,
		.read = region->read,
	};
	return 0;
}

/* A later state says more about the region. */
enum copy_state {
	COPY_NONE,    /* no magic: there is no superblock, or its magic is damaged */
	COPY_DAMAGED, /* a wrong CRC, or memory that cannot be read */
	COPY_LAYOUT,  /* a correct CRC, but impossible sizes */
	COPY_LATER,   /* a correct CRC, and an unknown version */
	COPY_SOUND,
};

static enum copy_state read_copy(const struct nvj_region *region, uint64_t offset,
				 struct nvj_disk_super *super)
{
	struct nvj_geometry unused;

	if (!nvj_copy_out(region->read, super, (const uint8_t *)region->base + offset,
			  sizeof(*super))) {
		__builtin_memset(super, 0, sizeof(*super));
		return COPY_DAMAGED;
	}
	if (super->magic != NVJ_SUPER_MAGIC)
		return COPY_NONE;
	/* Magic, version and CRC are at the same place in all versions. */
	if (super->crc != nvj_super_crc(super))
		return COPY_DAMAGED;
	if (super->version < NVJ_OLDEST_FORMAT_VERSION || super->version > NVJ_FORMAT_VERSION)
		return COPY_LATER;
	return nvj_geometry(region, super, &unused) ? COPY_LAYOUT : COPY_SOUND;
}

static bool same(const struct nvj_disk_super *a, const struct nvj_disk_super *b)
{
	const uint8_t *x = (const uint8_t *)a, *y = (const uint8_t *)b;

	for (unsigned i = 0; i < sizeof(*a); i++)
		if (x[i] != y[i])
			return false;
	return true;
}

void nvj_super_upgrade(struct nvj_disk_super *super)
{
	super->version = NVJ_FORMAT_VERSION;
	super->placement = NVJ_PLACE_BLOCK;
	super->crc = nvj_super_crc(super);
}

/* A crash while recovery upgraded the superblock left one copy as it was. */
static bool is_upgrade(const struct nvj_disk_super *old, const struct nvj_disk_super *new)
{
	struct nvj_disk_super upgraded = *old;

	if (old->version != NVJ_OLDEST_FORMAT_VERSION)
		return false;
	nvj_super_upgrade(&upgraded);
	return same(&upgraded, new);
}

int nvj_super_read(const struct nvj_region *region, struct nvj_disk_super *super,
		   struct nvj_geometry *geometry, unsigned *damaged, bool *layout)
{
	struct nvj_disk_super copy[2];
	enum copy_state state[2], worse, better;
	unsigned use;

	*damaged = 0;
	*layout = false;
	if (!region->base || (uintptr_t)region->base % NVJ_LINE_BYTES)
		return NVJ_EINVAL;
	if (region->size_bytes < NVJ_COMMITS_OFFSET)
		return NVJ_ENODATA;

	state[0] = read_copy(region, NVJ_SUPER_OFFSET, &copy[0]);
	state[1] = read_copy(region, NVJ_SUPER_COPY_OFFSET, &copy[1]);
	use = state[1] > state[0];
	better = state[use];
	worse = state[!use];

	/*
	 * A copy with a correct CRC was written with this content. Two such
	 * copies with different contents are not the result of a crash, because
	 * format erases both before it writes either of them. So there is no
	 * choice between them.
	 */
	if (better == COPY_LATER || worse == COPY_LATER)
		return NVJ_EFORMAT;
	/*
	 * Except during an upgrade. Nothing was logged in the new format
	 * before both copies were persistent. So the old copy still counts.
	 */
	if (worse == COPY_SOUND && is_upgrade(&copy[!use], &copy[use])) {
		use = !use;
		copy[!use] = copy[use];
	} else if (worse == COPY_SOUND && is_upgrade(&copy[use], &copy[!use])) {
		copy[!use] = copy[use];
	}
	if (better == COPY_LAYOUT || worse == COPY_LAYOUT ||
	    (worse == COPY_SOUND && !same(&copy[0], &copy[1]))) {
		*layout = true;
		return NVJ_EUCLEAN;
	}
	if (better == COPY_NONE)
		return NVJ_ENODATA;
	if (better == COPY_DAMAGED)
		return NVJ_EUCLEAN;
	if (worse != COPY_SOUND)
		*damaged = 1u << !use;
	*super = copy[use];
	return nvj_geometry(region, super, geometry);
}

int nvj_read_super(const struct nvj_region *region, struct nvj_disk_super *super)
{
	struct nvj_geometry geometry;
	unsigned damaged;
	bool layout;

	return nvj_super_read(region, super, &geometry, &damaged, &layout);
}
