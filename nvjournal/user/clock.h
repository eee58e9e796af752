/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that is fast enough to wait for 100 ns. */
#ifndef NVJU_CLOCK_H
#define NVJU_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t nvju_monotonic_ns(void);

/*
 * Nanoseconds since an arbitrary start; the processor's own counter where its
 * rate is constant.
 */
uint64_t nvju_fast_ns(void);

/*
 * Measures the rate of the counter. Call it once before nvju_fast_ns. It takes
 * 10 ms.
 */
void nvju_fast_clock_init(void);

/* Waits busily until nvju_fast_ns() is at least until_ns. */
void nvju_spin_until(uint64_t until_ns);

#endif
