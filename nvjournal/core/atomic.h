/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Atomic loads, stores and additions. The name of each contains its memory
 * order.
 *
 * The engine has no separate memory barriers. Where two threads each store one
 * word and then load the other thread's word, all four accesses are
 * sequentially consistent (_sc). The C language guarantees that this is enough,
 * and ThreadSanitizer understands it. On x86 such a load is an ordinary load.
 *
 * With NVJ_SCHEDULE each of these operations is a point at which the scheduler
 * of a test may switch to another thread.
 */
#ifndef NVJ_ATOMIC_H
#define NVJ_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef NVJ_SCHEDULE
void nvj_schedule_point(void);
#define nvj_point() nvj_schedule_point()
#else
#define nvj_point() ((void)0)
#endif

#ifdef NVJ_TRANSFERS
/* What the counter of transfers cannot see otherwise (bench/transfers). */
void nvj_transfers_relax(void);
void nvj_transfers_will_write(const void *address);
#endif

/* The field has a cache line of its own. */
#define NVJ_ALONE __attribute__((aligned(64)))

/*
 * No order: for words that are changed under a lock and read without it, and
 * for counters.
 */
#define nvj_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define nvj_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define nvj_count(p, v) ((void)__atomic_fetch_add((p), (v), __ATOMIC_RELAXED))

/*
 * A thread that acquires a word sees all that was stored before the release of
 * it.
 */
#define nvj_load_acquire(p)                                                                        \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_load_n((p), __ATOMIC_ACQUIRE);                                            \
	})
#define nvj_store_release(p, v)                                                                    \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_store_n((p), (v), __ATOMIC_RELEASE);                                      \
	})

/* All threads see all of these operations in the same order. */
#define nvj_load_sc(p)                                                                             \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_load_n((p), __ATOMIC_SEQ_CST);                                            \
	})
#define nvj_store_sc(p, v)                                                                         \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_store_n((p), (v), __ATOMIC_SEQ_CST);                                      \
	})
/* Returns the previous value. */
#define nvj_add_sc(p, v)                                                                           \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST);                                    \
	})
#define nvj_sub_sc(p, v)                                                                           \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST);                                    \
	})
#define nvj_or_sc(p, v)                                                                            \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_fetch_or((p), (v), __ATOMIC_SEQ_CST);                                     \
	})
#define nvj_exchange_sc(p, v)                                                                      \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST);                                   \
	})
/*
 * If *p is *expected, it becomes v and the result is true. Otherwise *expected
 * becomes the value of *p, and the result is false.
 */
#define nvj_replace_sc(p, expected, v)                                                             \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_SEQ_CST,         \
					    __ATOMIC_SEQ_CST);                                     \
	})

/* Raises *word to value, unless it is value or higher. */
static inline void nvj_raise_sc(uint64_t *word, uint64_t value)
{
	uint64_t now = nvj_load_sc(word);

	while (now < value && !nvj_replace_sc(word, &now, value))
		;
}

/*
 * The line at p will be written soon by this processor. p may be any address.
 */
static inline void nvj_will_write(const void *p)
{
#if defined(NVJ_TRANSFERS)
	nvj_transfers_will_write(p);
#elif defined(__x86_64__)
	/* A processor without this instruction executes it as a no-op. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const uint8_t *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/*
 * Fetches a line that will be read. The compiler omits __builtin_prefetch in a
 * function that does nothing else.
 */
static inline void nvj_will_read(const void *p)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetcht0 %0" : : "m"(*(const uint8_t *)p));
#else
	__builtin_prefetch(p, 0);
#endif
}

/* For a loop that waits a short time for another processor. */
static inline void nvj_relax(void)
{
	nvj_point();
#if defined(NVJ_TRANSFERS)
	nvj_transfers_relax();
#elif defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
