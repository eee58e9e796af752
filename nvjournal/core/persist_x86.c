/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Persistence on x86-64. A line is persistent when it has left the caches and
 * an sfence has waited until the memory controller has accepted it. The memory
 * controller keeps its contents when power fails (ADR).
 *
 * Non-temporal stores bypass the caches and need no flush. They are the default
 * because they were faster here (measurements: docs/nvjournal-format.md). clwb
 * writes a line back and may keep it in the cache. clflushopt evicts it.
 * clflush also evicts, but one line after the other; it is for old processors.
 *
 * movnti uses general registers, so it works in a kernel, too. SSE2's movntdq,
 * 16 bytes at a time, showed no clear gain in two short noisy runs. Wider
 * registers were not tried.
 */
#include "compiler.h"
#include "persist.h"

#if defined(__x86_64__)
#include "cpu_x86.h"

static bool always(void)
{
	return true;
}

/*
 * All ways end with this fence: it waits for write-backs and non-temporal
 * stores of this thread.
 */
static void x86_fence(const struct nvj_persistence *p)
{
	(void)p;
	__asm__ volatile("sfence" ::: "memory");
}

static inline void store_nt64(uint8_t *to, uint64_t value)
{
	__asm__ volatile("movnti %1, %0" : "=m"(*(uint64_t *)(void *)to) : "r"(value));
}

static inline uint64_t load64(const uint8_t *from)
{
	uint64_t value;

	__builtin_memcpy(&value, from, 8);
	return value;
}

static inline void store_nt_line(uint8_t *to, const uint8_t *from)
{
	NVJ_UNROLLED
	for (unsigned i = 0; i < NVJ_LINE_BYTES; i += 8)
		store_nt64(to + i, load64(from + i));
}

static void nt_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	(void)p;
	for (; bytes >= NVJ_LINE_BYTES; bytes -= NVJ_LINE_BYTES) {
		store_nt_line(t, f);
		t += NVJ_LINE_BYTES;
		f += NVJ_LINE_BYTES;
	}
}

static void nt_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	(void)p;
	store_nt64((uint8_t *)to, value);
}

/*
 * The other ways: ordinary stores, then one instruction for each line. It is
 * ordered after the stores to its own line, so no fence is needed between.
 */
#define WAY_BY(name)                                                                               \
	static void name##_write(const struct nvj_persistence *p, void *to, const void *from,      \
				 size_t bytes)                                                     \
	{                                                                                          \
		uint8_t *t = to;                                                                   \
		const uint8_t *f = from;                                                           \
                                                                                                   \
		(void)p;                                                                           \
		for (; bytes >= NVJ_LINE_BYTES; bytes -= NVJ_LINE_BYTES) {                         \
			__builtin_memcpy(t, f, NVJ_LINE_BYTES);                                    \
			__asm__ volatile(#name " %0" : "+m"(*(uint8_t(*)[NVJ_LINE_BYTES])t));      \
			t += NVJ_LINE_BYTES;                                                       \
			f += NVJ_LINE_BYTES;                                                       \
		}                                                                                  \
	}                                                                                          \
	static void name##_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)  \
	{                                                                                          \
		(void)p;                                                                           \
		__atomic_store_n(to, value, __ATOMIC_RELAXED);                                     \
		__asm__ volatile(#name " %0" : "+m"(*to));                                         \
	}

WAY_BY(clwb)
WAY_BY(clflushopt)
WAY_BY(clflush)

/* Versions of clang-format differ here. */
/* clang-format off */
#define WAY(way, has)                                                                              \
	{                                                                                          \
		.table = {.name = #way,                                                            \
			  .write = way##_write,                                                    \
			  .store64 = way##_store64,                                                \
			  .fence = x86_fence},                                                     \
		.available = has                                                                   \
	}
/* clang-format on */

const struct nvj_persist_way nvj_persist_ways[] = {
	WAY(nt, always),
	WAY(clwb, nvj_cpu_has_clwb),
	WAY(clflushopt, nvj_cpu_has_clflushopt),
	WAY(clflush, nvj_cpu_has_clflush),
};
const unsigned nvj_persist_way_count = sizeof(nvj_persist_ways) / sizeof(nvj_persist_ways[0]);

#elif !defined(__aarch64__)

/* No way is known on this architecture, only "none". */
const struct nvj_persist_way nvj_persist_ways[1];
const unsigned nvj_persist_way_count = 0;

#endif
