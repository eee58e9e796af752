/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A lock of 4 bytes that sleeps by the platform's wait and wake: after 0 (free)
 * and 1 (taken) there is 2, taken and perhaps waited for, so that a lock nobody
 * waits for costs one atomic instruction on a line of its owner's.
 *
 * And a bell: a word that counts events, to sleep on until something changed.
 */
#ifndef NVJ_LOCK_H
#define NVJ_LOCK_H

#include "../include/nvjournal.h"
#include "atomic.h"

struct nvj_lock {
	uint32_t state;
};

void nvj_lock_slowly(struct nvj_lock *lock, const struct nvj_platform *platform);

static inline bool nvj_try_lock(struct nvj_lock *lock)
{
	uint32_t is_free = 0;

	/* Acquire: what the last owner did under the lock is seen. */
	nvj_point();
	return __atomic_compare_exchange_n(&lock->state, &is_free, 1, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static inline void nvj_lock(struct nvj_lock *lock, const struct nvj_platform *platform)
{
	if (!nvj_try_lock(lock))
		nvj_lock_slowly(lock, platform);
}

static inline void nvj_unlock(struct nvj_lock *lock, const struct nvj_platform *platform)
{
	/*
	 * Release: the next owner sees what was done. A plain store where nobody is
	 * seen to wait, as an exchange would wait for all stores before it. Who comes
	 * to wait between the look and the store is not woken: he never sleeps for
	 * long (lock.c).
	 */
	if (nvj_load(&lock->state) == 1) {
		nvj_store_release(&lock->state, 0);
		return;
	}
	nvj_point();
	if (__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)
		platform->wake(platform->context, &lock->state);
}

/*
 * Who waits: counts himself in, reads rings, looks whether what he waits for is
 * so, and if not waits until rings differs from what he read. Who makes it so:
 * stores it, then rings. Stores and loads on both sides are sequentially
 * consistent: either he who waits sees it, or he is seen to wait.
 */
struct nvj_bell {
	uint32_t rings;
	uint32_t waiting;
};

static inline void nvj_ring_bell(struct nvj_bell *bell, const struct nvj_platform *platform)
{
	if (nvj_load_sc(&bell->waiting)) {
		nvj_add_sc(&bell->rings, 1);
		platform->wake(platform->context, &bell->rings);
	}
}

static inline uint32_t nvj_attend(struct nvj_bell *bell)
{
	nvj_add_sc(&bell->waiting, 1);
	return nvj_load_sc(&bell->rings);
}

static inline void nvj_leave(struct nvj_bell *bell)
{
	nvj_sub_sc(&bell->waiting, 1);
}

#endif
