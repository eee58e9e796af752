/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Makes an empty journal. After a crash there is no journal, the complete old
 * one, or the new one.
 */
#include "format.h"

static const uint8_t zeros[NVJ_BLOCK_BYTES];

static bool any(const uint8_t uuid[16])
{
	for (unsigned i = 0; i < 16; i++)
		if (uuid[i])
			return true;
	return false;
}

static void erase(const struct nvj_region *region, uint64_t from, uint64_t to)
{
	const struct nvj_persistence *p = region->persistence;

	while (from < to) {
		uint64_t bytes = to - from < sizeof(zeros) ? to - from : sizeof(zeros);

		p->write(p, (uint8_t *)region->base + from, zeros, bytes);
		from += bytes;
	}
}

/*
 * One for each 4 KiB of the region, but above 4096 the commit ring is at most a
 * 32nd of the region. Transactions are mostly smaller than 4 KiB. So the rings of
 * the records are full first, and a checkpoint need not write blocks that are
 * changed again, or freed, before that.
 */
static uint32_t usual_commits(uint64_t size_bytes, uint32_t commit_lines)
{
	uint64_t most = size_bytes / 32 / (commit_lines * NVJ_LINE_BYTES);
	uint32_t commits = NVJ_MIN_COMMITS;

	most = most < 4096 ? 4096 : most < NVJ_MAX_COMMITS ? most : NVJ_MAX_COMMITS;
	while ((uint64_t)commits * 2 <= most && (uint64_t)commits * 2 <= size_bytes / 4096)
		commits *= 2;
	return commits;
}

/* Divides the region. NVJ_EINVAL, NVJ_ENOSPC. */
static int lay_out(const struct nvj_region *region, const struct nvj_format_options *options,
		   struct nvj_disk_super *super)
{
	uint64_t commit_bytes, ring_lines;

	super->partitions = options->partitions ? options->partitions : 1;
	super->commit_lines = nvj_commit_lines(super->partitions);
	super->commits = options->commits ? options->commits
					  : usual_commits(region->size_bytes, super->commit_lines);
	if (super->partitions > NVJ_MAX_PARTITIONS || super->commits < NVJ_MIN_COMMITS ||
	    super->commits > NVJ_MAX_COMMITS || super->commits & (super->commits - 1))
		return NVJ_EINVAL;

	/* Each partition starts at a page, so that threads share no page. */
	commit_bytes = (uint64_t)super->commits * super->commit_lines * NVJ_LINE_BYTES;
	super->partition_offset = (NVJ_COMMITS_OFFSET + commit_bytes + 4095) / 4096 * 4096;
	if (super->partition_offset > region->size_bytes)
		return NVJ_ENOSPC;
	ring_lines = (region->size_bytes - super->partition_offset) / super->partitions /
		     NVJ_BLOCK_BYTES * NVJ_BLOCK_LINES;
	if (ring_lines < NVJ_MIN_RING_LINES)
		return NVJ_ENOSPC;
	super->ring_lines = ring_lines < NVJ_MAX_RING_LINES ? ring_lines : NVJ_MAX_RING_LINES;
	super->size_bytes =
		super->partition_offset + super->partitions * super->ring_lines * NVJ_LINE_BYTES;
	return 0;
}

int nvj_format(const struct nvj_region *region, const struct nvj_format_options *options)
{
	const struct nvj_persistence *p = region->persistence;
	struct nvj_disk_super super = {0};
	struct nvj_commit_buffer anchor;
	struct nvj_geometry g;
	int error;

	if (!region->base || (uintptr_t)region->base % NVJ_LINE_BYTES || !p || !any(options->uuid))
		return NVJ_EINVAL;
	super.magic = NVJ_SUPER_MAGIC;
	super.version = NVJ_FORMAT_VERSION;
	super.placement = options->placement ? options->placement : NVJ_PLACE_CPU;
	__builtin_memcpy(super.uuid, options->uuid, sizeof(super.uuid));
	__builtin_memcpy(super.disk_uuid, options->disk_uuid, sizeof(super.disk_uuid));
	super.block_bytes = NVJ_BLOCK_BYTES;
	super.seed = nvj_seed_of(super.uuid);
	super.formatted_unix = options->now_unix;
	error = lay_out(region, options, &super);
	if (error)
		return error;
	super.crc = nvj_super_crc(&super);
	error = nvj_geometry(region, &super, &g);
	if (error)
		return error;

	/*
	 * Both superblocks are erased first, followed by a fence. So a
	 * superblock never exists together with a tail or commit ring of
	 * another journal.
	 */
	erase(region, NVJ_SUPER_OFFSET, NVJ_TAIL_OFFSET);
	p->fence(p);
	/*
	 * The commit ring is cleared, because the seal of an empty slot is 0.
	 * The rings are not cleared: no record in them has a CRC that starts
	 * with the new seed.
	 */
	erase(region, NVJ_TAIL_OFFSET, super.partition_offset);
	p->fence(p);
	nvj_commit_begin(&g, &anchor, 0, NVJ_ANCHOR, 0);
	nvj_commit_write_body(&g, p, &anchor);
	nvj_commit_write_seal(&g, p, &anchor);
	nvj_tail_write(&g, p, 0); /* fences */
	/* The superblock is written only when all that it refers to exists. */
	p->write(p, g.base + NVJ_SUPER_OFFSET, &super, sizeof(super));
	p->write(p, g.base + NVJ_SUPER_COPY_OFFSET, &super, sizeof(super));
	p->fence(p);
	return 0;
}
