/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Waiting for another thread without sleeping, for some microseconds: sleeping and
 * waking take longer. The thread that is awaited needs a processor, and so may
 * others. So a thread does this only while no other one is ready to run on its own
 * processor. A platform that cannot say so has no alone, and its threads do not.
 */
#ifndef NVJ_SPIN_H
#define NVJ_SPIN_H

#include "../include/nvjournal.h"
#include "atomic.h"

/* What a thread waits for changes often enough if it checks after so many pauses. */
#define NVJ_SPIN_PAUSES 8u
/* A limit of checks, if the clock stands still. */
#define NVJ_SPIN_LOOKS 2000u

struct nvj_spin {
	uint64_t until_ns;
	unsigned looks;
};

static inline struct nvj_spin nvj_spin_for(const struct nvj_platform *platform, uint64_t ns)
{
	struct nvj_spin spin = {0};

	if (platform->alone && ns)
		spin.until_ns = platform->now_ns(platform->context) + ns;
	return spin;
}

/* Pauses. True: the caller checks once more, and calls this again. */
static inline bool nvj_spin_on(const struct nvj_platform *platform, struct nvj_spin *spin)
{
	if (!spin->until_ns || spin->looks++ == NVJ_SPIN_LOOKS ||
	    !platform->alone(platform->context) ||
	    platform->now_ns(platform->context) >= spin->until_ns)
		return false;
	for (unsigned i = 0; i < NVJ_SPIN_PAUSES; i++)
		nvj_relax();
	return true;
}

#endif
