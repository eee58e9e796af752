/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Revoked blocks, in a hash table with open addressing that is at most half
 * full.
 */
#include "replay_revokes.h"
#include "hash.h"

struct nvj_revoke_entry {
	uint64_t block;
	uint64_t last; /* the highest number of a revoke; 0: the entry is free */
};

static size_t bytes_of(const struct nvj_revokes *r)
{
	return r->size * sizeof(struct nvj_revoke_entry);
}

int nvj_revokes_init(struct nvj_revokes *r, const struct nvj_platform *platform, uint64_t count)
{
	r->entries = NULL;
	r->size = 0;
	if (!count)
		return 0;
	/* There are at most as many as lines in a ring, 2^30. */
	r->size = 16;
	while (r->size < count * 2)
		r->size *= 2;
	r->entries = platform->allocate(platform->context, bytes_of(r));
	return r->entries ? 0 : NVJ_ENOMEM;
}

void nvj_revokes_free(struct nvj_revokes *r, const struct nvj_platform *platform)
{
	if (r->entries)
		platform->release(platform->context, r->entries, bytes_of(r));
	r->entries = NULL;
}

/* The entry of the block, or the free entry for it. */
static struct nvj_revoke_entry *entry_of(const struct nvj_revokes *r, uint64_t block)
{
	uint64_t i = nvj_hash(block) & (r->size - 1);

	while (r->entries[i].last && r->entries[i].block != block)
		i = (i + 1) & (r->size - 1);
	return &r->entries[i];
}

void nvj_revokes_put(struct nvj_revokes *r, uint64_t block, uint64_t number)
{
	struct nvj_revoke_entry *e = entry_of(r, block);

	e->block = block;
	if (e->last < number)
		e->last = number;
}

bool nvj_revokes_has(const struct nvj_revokes *r, uint64_t block, uint64_t number)
{
	return r->entries && number < entry_of(r, block)->last;
}
