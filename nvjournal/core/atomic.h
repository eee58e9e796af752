/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Atomic loads, stores and additions, each with the order it gives in its name.
 *
 * There is no stand-alone memory barrier in the engine. Where two threads each
 * store one word and then load the other's, all four accesses are sequentially
 * consistent ones (_sc); that is enough by the language, ThreadSanitizer follows
 * it, and on x86 such a load is a plain one.
 *
 * With NVJ_SCHEDULE each of these is a point where a test's scheduler may let
 * another thread go on.
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

/* What is alone in its line shares it with nobody. */
#define NVJ_ALONE __attribute__((aligned(64)))

/* No order: for words under a lock that others glance at, and for counts. */
#define nvj_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define nvj_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define nvj_count(p, v) ((void)__atomic_fetch_add((p), (v), __ATOMIC_RELAXED))

/* What was stored before a release is seen by who acquires it. */
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

/* All of these lie in one order that all threads agree on. */
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
/* The value before. */
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
/* True if *p was *expected and is now v; else *expected is what *p is. */
#define nvj_replace_sc(p, expected, v)                                                             \
	__extension__({                                                                            \
		nvj_point();                                                                       \
		__atomic_compare_exchange_n((p), (expected), (v), false, __ATOMIC_SEQ_CST,         \
					    __ATOMIC_SEQ_CST);                                     \
	})

/* Raises *word to value, unless it is that high already. */
static inline void nvj_raise_sc(uint64_t *word, uint64_t value)
{
	uint64_t now = nvj_load_sc(word);

	while (now < value && !nvj_replace_sc(word, &now, value))
		;
}

/* The line at p is wanted here soon, to be written. Any p. */
static inline void nvj_will_write(const void *p)
{
#if defined(__x86_64__)
	/* Where a processor has not got it, it does nothing. */
	__asm__ volatile("prefetchw %0" : : "m"(*(const uint8_t *)p));
#else
	__builtin_prefetch(p, 1);
#endif
}

/* In a loop that waits for another processor for a moment. */
static inline void nvj_relax(void)
{
	nvj_point();
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
