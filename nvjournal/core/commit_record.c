/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A record of the commit ring and its seal: commit_orders[] of paper 3, Fig. 3,
 * and commit_ts[] of paper 4, Fig. 3.
 */
#include "format.h"

static uint32_t bytes_of(const struct nvj_geometry *g)
{
	return g->commit_lines * NVJ_LINE_BYTES;
}

static uint32_t tid_crc(const struct nvj_geometry *g, uint64_t tid)
{
	return nvj_crc32c(g->seed, &tid, sizeof(tid));
}

void nvj_commit_begin(const struct nvj_geometry *g, struct nvj_commit_buffer *b, uint64_t tid,
		      enum nvj_commit_kind kind, uint64_t time_ns)
{
	__builtin_memset(b, 0, bytes_of(g));
	b->tid = tid;
	b->kind = kind;
	b->partitions = g->partitions;
	b->time_ns = time_ns;
}

uint64_t nvj_commit_seal(const struct nvj_geometry *g, const struct nvj_commit_buffer *b)
{
	const uint64_t no_seal = 0;
	uint32_t crc = nvj_crc32c(g->seed, &no_seal, sizeof(no_seal));

	crc = nvj_crc32c(crc, (const uint8_t *)b + sizeof(no_seal), bytes_of(g) - sizeof(no_seal));
	return crc | (uint64_t)tid_crc(g, b->tid) << 32;
}

void nvj_commit_write_body(const struct nvj_geometry *g, const struct nvj_persistence *p,
			   struct nvj_commit_buffer *b)
{
	struct nvj_disk_commit *slot = nvj_commit_at(g, b->tid);

	/*
	 * The first line is written as a whole. Until the seal is stored, the
	 * slot must read as "not yet". The seal of the previous lap does, by
	 * its upper half. It is computed without reading the slot, because its
	 * memory may fail.
	 */
	b->seal = b->tid < g->commits ? 0 : (uint64_t)tid_crc(g, b->tid - g->commits) << 32;
	p->write(p, slot, b, bytes_of(g));
	/* Computed now, because the caller waits for its fence anyway. */
	b->seal = nvj_commit_seal(g, b);
}

void nvj_commit_write_seal(const struct nvj_geometry *g, const struct nvj_persistence *p,
			   const struct nvj_commit_buffer *b)
{
	p->store64(p, &nvj_commit_at(g, b->tid)->seal, b->seal);
}

enum nvj_slot_state nvj_commit_read(const struct nvj_geometry *g, uint64_t tid,
				    struct nvj_commit_buffer *b)
{
	uint32_t sealed_for;

	__builtin_memset(b, 0, sizeof(*b));
	if (!nvj_copy_out(g->read, b, nvj_commit_at(g, tid), bytes_of(g)))
		return NVJ_SLOT_DAMAGED;
	/*
	 * Before the test of the upper half: for a tid of the first lap that is
	 * equal to the seed, tid_crc is 0, too. No seal that was stored is 0, but
	 * with a probability of 2^-64.
	 */
	if (tid < g->commits && b->seal == 0)
		return NVJ_SLOT_NOT_YET;
	sealed_for = (uint32_t)(b->seal >> 32);
	if (sealed_for == tid_crc(g, tid)) {
		if ((uint32_t)b->seal != (uint32_t)nvj_commit_seal(g, b) || b->tid != tid ||
		    b->partitions != g->partitions || b->kind < NVJ_COMMIT || b->kind > NVJ_ANCHOR)
			return NVJ_SLOT_DAMAGED;
		return NVJ_SLOT_SEALED;
	}
	/*
	 * Of the previous lap only the seal counts. A commit may have been in
	 * progress after it.
	 */
	if (tid < g->commits)
		return NVJ_SLOT_DAMAGED;
	return sealed_for == tid_crc(g, tid - g->commits) ? NVJ_SLOT_NOT_YET : NVJ_SLOT_DAMAGED;
}
