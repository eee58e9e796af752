/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The slow path of a lock: check for a while, then sleep. */
#include "lock.h"

#include "spin.h"

#define LOOKS 100
/* How long a thread then checks before it sleeps, if it is alone on its processor. */
#define SPIN_NS UINT64_C(20000)
/*
 * How long a thread sleeps, in nanoseconds. It may not be woken: see
 * nvj_unlock.
 */
#define SLEEP_NS UINT64_C(50000)
#define LONGEST_SLEEP_NS UINT64_C(1600000)

static void take(struct nvj_lock *lock, const struct nvj_platform *platform)
{
	uint64_t sleep_ns = SLEEP_NS;
	struct nvj_spin spin;

	for (int i = 0; i < LOOKS; i++) {
		nvj_relax();
		if (nvj_load(&lock->state) == 0 && nvj_try_lock(lock))
			return;
	}
	spin = nvj_spin_for(platform, SPIN_NS);
	while (nvj_spin_on(platform, &spin))
		if (nvj_load(&lock->state) == 0 && nvj_try_lock(lock))
			return;
	/*
	 * From here on the state is 2 when we take the lock: the thread that
	 * frees it cannot know that we were the only waiter. One wake too many
	 * is harmless.
	 */
	for (;;) {
		nvj_point();
		if (__atomic_exchange_n(&lock->state, 2, __ATOMIC_ACQUIRE) == 0) {
			nvj_lock_taken(lock);
			return;
		}
		platform->wait(platform->context, &lock->state, 2, sleep_ns);
		if (sleep_ns < LONGEST_SLEEP_NS)
			sleep_ns *= 2;
	}
}

void nvj_lock_slowly(struct nvj_lock *lock, const struct nvj_platform *platform)
{
	uint64_t began = platform->now_ns(platform->context);

	take(lock, platform);
	nvj_lock_waited(platform, lock, platform->now_ns(platform->context) - began);
}
