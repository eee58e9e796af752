/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Persistence on AArch64: ordinary stores, dc cvap (clean to the point of
 * persistence, ARMv8.2) for each line, and dsb as the fence. The code follows
 * the architecture's manual. It ran in an emulated guest, and never on such a
 * processor.
 */
#include "persist.h"

#if defined(__aarch64__)

/* ID_AA64ISAR1_EL1.DPB; on Linux, user space can read it. */
static bool has_cvap(void)
{
	uint64_t isar1;

	__asm__("mrs %0, S3_0_C0_C6_1" : "=r"(isar1));
	return isar1 & 15;
}

/* dc cvap as a number, because older assemblers do not know its name. */
static inline void clean(const void *line)
{
	__asm__ volatile("sys #3, c7, c12, #1, %0" : : "r"(line) : "memory");
}

static void cvap_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	(void)p;
	/*
	 * A cache line of the processor has 64 bytes or more. Each is cleaned
	 * at least once.
	 */
	for (; bytes >= NVJ_LINE_BYTES; bytes -= NVJ_LINE_BYTES) {
		__builtin_memcpy(t, f, NVJ_LINE_BYTES);
		clean(t);
		t += NVJ_LINE_BYTES;
		f += NVJ_LINE_BYTES;
	}
}

static void cvap_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	(void)p;
	__atomic_store_n(to, value, __ATOMIC_RELAXED);
	clean(to);
}

static void cvap_fence(const struct nvj_persistence *p)
{
	(void)p;
	/*
	 * dsb, not dmb: it waits until the cleans have ended. dmb only orders
	 * them.
	 */
	__asm__ volatile("dsb sy" ::: "memory");
}

const struct nvj_persist_way nvj_persist_ways[] = {
	{.table = {.name = "cvap",
		   .write = cvap_write,
		   .store64 = cvap_store64,
		   .fence = cvap_fence},
	 .available = has_cvap},
};
const unsigned nvj_persist_way_count = 1;

#endif
