/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code calls that a compiler has instrumented for ThreadSanitizer: each load
 * and each store, before it, and each atomic operation, instead of it. The library
 * of ThreadSanitizer is not linked.
 */
#include "processors.h"
#include "traced.h"

#include <string.h>

void *traced_copy(void *to, const void *from, size_t bytes)
{
	processor_access(from, bytes, false);
	processor_access(to, bytes, true);
	return memmove(to, from, bytes);
}

void *traced_set(void *to, int value, size_t bytes)
{
	processor_access(to, bytes, true);
	return memset(to, value, bytes);
}

int traced_compare(const void *a, const void *b, size_t bytes)
{
	processor_access(a, bytes, false);
	processor_access(b, bytes, false);
	return memcmp(a, b, bytes);
}

/* The names are the compiler's. */
void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_read_range(void *address, unsigned long bytes);
void __tsan_write_range(void *address, unsigned long bytes);

void __tsan_init(void)
{
}

void __tsan_func_entry(void *caller)
{
	(void)caller;
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *address, unsigned long bytes)
{
	processor_access(address, bytes, false);
}

void __tsan_write_range(void *address, unsigned long bytes)
{
	processor_access(address, bytes, true);
}

#define PLAIN(name, bytes, store)                                                                  \
	void __tsan_##name(void *address);                                                         \
	void __tsan_##name(void *address)                                                          \
	{                                                                                          \
		processor_access(address, bytes, store);                                           \
	}
PLAIN(read1, 1, false)
PLAIN(read2, 2, false)
PLAIN(read4, 4, false)
PLAIN(read8, 8, false)
PLAIN(read16, 16, false)
PLAIN(write1, 1, true)
PLAIN(write2, 2, true)
PLAIN(write4, 4, true)
PLAIN(write8, 8, true)
PLAIN(write16, 16, true)
PLAIN(unaligned_read2, 2, false)
PLAIN(unaligned_read4, 4, false)
PLAIN(unaligned_read8, 8, false)
PLAIN(unaligned_read16, 16, false)
PLAIN(unaligned_write2, 2, true)
PLAIN(unaligned_write4, 4, true)
PLAIN(unaligned_write8, 8, true)
PLAIN(unaligned_write16, 16, true)

#define ADDING(bits, name)                                                                         \
	uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t v,  \
						    int order);                                    \
	uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t *p, uint##bits##_t v,  \
						    int order)                                     \
	{                                                                                          \
		(void)order;                                                                       \
		processor_atomic((const void *)p, true);                                           \
		return __atomic_##name(p, v, __ATOMIC_SEQ_CST);                                    \
	}
/* A sequentially consistent store is an exchange on x86; others are plain stores. */
#define ATOMIC(bits)                                                                               \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order);    \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order)     \
	{                                                                                          \
		(void)order;                                                                       \
		processor_atomic((const void *)p, false);                                          \
		return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                       \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int order); \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int order)  \
	{                                                                                          \
		if (order == __ATOMIC_SEQ_CST)                                                     \
			processor_atomic((const void *)p, true);                                   \
		else                                                                               \
			processor_access((const void *)p, bits / 8, true);                         \
		__atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                          \
	}                                                                                          \
	uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *p,                  \
						      uint##bits##_t v, int order);                \
	uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *p,                  \
						      uint##bits##_t v, int order)                 \
	{                                                                                          \
		(void)order;                                                                       \
		processor_atomic((const void *)p, true);                                           \
		return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                \
	}                                                                                          \
	bool __tsan_atomic##bits##_compare_exchange_strong(                                        \
		volatile uint##bits##_t *p, uint##bits##_t *expected, uint##bits##_t v, int order, \
		int otherwise);                                                                    \
	bool __tsan_atomic##bits##_compare_exchange_strong(                                        \
		volatile uint##bits##_t *p, uint##bits##_t *expected, uint##bits##_t v, int order, \
		int otherwise)                                                                     \
	{                                                                                          \
		(void)order;                                                                       \
		(void)otherwise;                                                                   \
		processor_atomic((const void *)p, true);                                           \
		return __atomic_compare_exchange_n(p, expected, v, false, __ATOMIC_SEQ_CST,        \
						   __ATOMIC_SEQ_CST);                              \
	}                                                                                          \
	ADDING(bits, fetch_add)                                                                    \
	ADDING(bits, fetch_sub)                                                                    \
	ADDING(bits, fetch_or)                                                                     \
	ADDING(bits, fetch_and)

ATOMIC(8)
ATOMIC(16)
ATOMIC(32)
ATOMIC(64)
