/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Handles that wait before they start, without sleeping (spin.h).
 */
#include "journal.h"
#include "spin.h"

/* How long a handle waits at most. */
#define START_NS UINT64_C(20000)
#define MOST_SKIPS 16u

void nvj_let_drain(struct nvj *j, struct nvj_cpu *c)
{
	uint32_t skips = nvj_load(&c->skips), next;
	struct nvj_spin spin;

	if (!j->platform.alone)
		return;
	if (skips) {
		nvj_store(&c->skips, skips - 1);
		return;
	}
	spin = nvj_spin_for(&j->platform, START_NS);
	while (nvj_spin_on(&j->platform, &spin))
		if (!nvj_load_acquire(&j->draining)) {
			nvj_store(&c->skips_next, 0);
			return;
		}
	next = nvj_load(&c->skips_next);
	next = next ? 2 * next : 1;
	if (next > MOST_SKIPS)
		next = MOST_SKIPS;
	nvj_store(&c->skips, next);
	nvj_store(&c->skips_next, next);
}

void nvj_let_open(struct nvj *j, uint32_t hold)
{
	struct nvj_spin spin;

	if ((hold & NVJ_HOLD_BITS) != NVJ_HOLD_GATE)
		return;
	spin = nvj_spin_for(&j->platform, START_NS);
	while (nvj_spin_on(&j->platform, &spin))
		if (nvj_load_sc(&j->hold) != hold)
			return;
}
