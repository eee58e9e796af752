/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Features of an x86-64 processor, read with cpuid directly, so that no header
 * of a compiler or kernel is needed. The code uses general registers only.
 */
#ifndef NVJ_CPU_X86_H
#define NVJ_CPU_X86_H

#include <stdbool.h>
#include <stdint.h>

struct nvj_cpuid {
	uint32_t a, b, c, d;
};

static inline struct nvj_cpuid nvj_cpuid(uint32_t leaf, uint32_t subleaf)
{
	struct nvj_cpuid r;

	__asm__ volatile("cpuid"
			 : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d)
			 : "a"(leaf), "c"(subleaf));
	return r;
}

/* Register b of leaf 7; 0 if the processor has no such leaf. */
static inline uint32_t nvj_cpuid_7b(void)
{
	return nvj_cpuid(0, 0).a >= 7 ? nvj_cpuid(7, 0).b : 0;
}

static inline bool nvj_cpu_has_crc32(void)
{
	return nvj_cpuid(1, 0).c >> 20 & 1;
}

static inline bool nvj_cpu_has_pclmul(void)
{
	return nvj_cpuid(1, 0).c >> 1 & 1;
}

static inline bool nvj_cpu_has_clflush(void)
{
	return nvj_cpuid(1, 0).d >> 19 & 1;
}

static inline bool nvj_cpu_has_clflushopt(void)
{
	return nvj_cpuid_7b() >> 23 & 1;
}

static inline bool nvj_cpu_has_clwb(void)
{
	return nvj_cpuid_7b() >> 24 & 1;
}

#endif
