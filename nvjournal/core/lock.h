/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A lock of 4 bytes that sleeps with the platform's wait and wake. The states
 * are 0 (free), 1 (taken), and 2 (taken, and threads may wait). So a lock
 * without waiters costs one atomic instruction on a line that its owner has in
 * its cache.
 *
 * A bell is a word that counts events. A thread sleeps on it until something
 * changes.
 *
 * With NVJ_LOCK_TIMES the engine also measures how long each lock is held. Then a
 * lock has 16 bytes, and its owner reads a counter of the processor twice.
 */
#ifndef NVJ_LOCK_H
#define NVJ_LOCK_H

#include "../include/nvjournal.h"
#include "atomic.h"

struct nvj_lock {
	uint32_t state;
#ifdef NVJ_LOCK_TIMES
	uint64_t since; /* nvj_ticks, when the owner took it */
#endif
};

#ifdef NVJ_LOCK_TIMES
/* A counter that increases steadily. Its unit is measured: nvj_ticks_ns. */
static inline uint64_t nvj_ticks(void)
{
#if defined(__x86_64__)
	uint32_t low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
	uint64_t ticks;

	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
	return ticks;
#else
#error "NVJ_LOCK_TIMES: no counter of this processor is known"
#endif
}

/* From one reading to another one. The counters of two processors may differ a little. */
static inline uint64_t nvj_ticks_between(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

/* statistics.c: nanoseconds of so many ticks. */
uint64_t nvj_ticks_ns(const struct nvj *j, uint64_t ticks);
/* statistics.c: counts a hold of a lock, which is free again. */
void nvj_lock_held(const struct nvj_platform *platform, const struct nvj_lock *lock,
		   uint64_t ticks);
#endif

/* The caller has just taken the lock. */
static inline void nvj_lock_taken(struct nvj_lock *lock)
{
#ifdef NVJ_LOCK_TIMES
	lock->since = nvj_ticks();
#else
	(void)lock;
#endif
}

/* platform is that of a journal (struct nvj). */
void nvj_lock_slowly(struct nvj_lock *lock, const struct nvj_platform *platform);
/* statistics.c: counts a wait for a lock. */
void nvj_lock_waited(const struct nvj_platform *platform, const struct nvj_lock *lock, uint64_t ns);

static inline bool nvj_try_lock(struct nvj_lock *lock)
{
	uint32_t is_free = 0;
	bool taken;

	/*
	 * Acquire: all that the previous owner did under the lock is visible.
	 */
	nvj_point();
	taken = __atomic_compare_exchange_n(&lock->state, &is_free, 1, false, __ATOMIC_ACQUIRE,
					    __ATOMIC_RELAXED);
	if (taken)
		nvj_lock_taken(lock);
	return taken;
}

static inline void nvj_lock(struct nvj_lock *lock, const struct nvj_platform *platform)
{
	if (!nvj_try_lock(lock))
		nvj_lock_slowly(lock, platform);
}

static inline void nvj_lock_release(struct nvj_lock *lock, const struct nvj_platform *platform)
{
	/*
	 * Release: the next owner sees all that was done. It is a plain store
	 * if no thread is seen to wait, because an exchange would wait for all
	 * earlier stores. A thread that starts to wait between the check and
	 * the store is not woken, but it never sleeps long (lock.c).
	 */
	if (nvj_load(&lock->state) == 1) {
		nvj_store_release(&lock->state, 0);
		return;
	}
	nvj_point();
	if (__atomic_exchange_n(&lock->state, 0, __ATOMIC_RELEASE) == 2)
		platform->wake(platform->context, &lock->state);
}

static inline void nvj_unlock(struct nvj_lock *lock, const struct nvj_platform *platform)
{
#ifdef NVJ_LOCK_TIMES
	uint64_t ticks = nvj_ticks_between(lock->since, nvj_ticks());

	nvj_lock_release(lock, platform);
	nvj_lock_held(platform, lock, ticks);
#else
	nvj_lock_release(lock, platform);
#endif
}

/*
 * A waiting thread counts itself, reads rings, and checks its condition. If the
 * condition is false, it waits until rings differs from the value that it read.
 * The thread that makes the condition true stores it, and then rings. Stores
 * and loads on both sides are sequentially consistent. So either the waiting
 * thread sees the condition, or the other one sees that it waits.
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
