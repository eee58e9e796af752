/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Hints for the compiler. */
#ifndef NVJ_COMPILER_H
#define NVJ_COMPILER_H

#define NVJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define NVJ_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Before a loop of at most eight iterations: unroll it completely. */
#if defined(__clang__)
#define NVJ_UNROLLED _Pragma("unroll")
#else
#define NVJ_UNROLLED _Pragma("GCC unroll 8")
#endif

/*
 * Inlined into each caller, so that constant arguments are constants in the
 * function.
 */
#define NVJ_INLINED inline __attribute__((always_inline))

/* Rarely called. It is not inlined, so that its caller saves no registers for it. */
#define NVJ_RARE __attribute__((__noinline__))

#endif
