/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * For each block that a committed transaction revoked: the last position at
 * which it was revoked. No record of the block before that position is replayed
 * (rule 9).
 */
#ifndef NVJ_REPLAY_REVOKES_H
#define NVJ_REPLAY_REVOKES_H

#include "../include/nvjournal.h"

struct nvj_revokes {
	struct nvj_revoke_entry *entries; /* NULL: there are no revokes */
	uint64_t size;                    /* a power of two, larger than the number of revokes */
};

/*
 * Allocates space for count revokes, which the caller has counted in sound
 * records. NVJ_ENOMEM.
 */
int nvj_revokes_init(struct nvj_revokes *r, const struct nvj_platform *platform, uint64_t count);
void nvj_revokes_free(struct nvj_revokes *r, const struct nvj_platform *platform);

/* Revokes are added in any order. */
void nvj_revokes_put(struct nvj_revokes *r, uint64_t block, uint64_t number);

/* Says whether a record of the block with this number must not be replayed. */
bool nvj_revokes_has(const struct nvj_revokes *r, uint64_t block, uint64_t number);

#endif
