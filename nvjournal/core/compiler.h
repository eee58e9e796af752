/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* What a compiler is told beside the code. */
#ifndef NVJ_COMPILER_H
#define NVJ_COMPILER_H

#define NVJ_LIKELY(x) __builtin_expect(!!(x), 1)
#define NVJ_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Before a loop of eight rounds at most: no loop. */
#if defined(__clang__)
#define NVJ_UNROLLED _Pragma("unroll")
#else
#define NVJ_UNROLLED _Pragma("GCC unroll 8")
#endif

/* Into each of its callers: what they pass as a constant is one there. */
#define NVJ_INLINED inline __attribute__((always_inline))

#endif
