/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that is cheap enough to wait for 100 ns by it. */
#ifndef NVJU_CLOCK_H
#define NVJU_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t nvju_monotonic_ns(void);

/* Nanoseconds from no point in particular; the processor's own counter where it is steady. */
uint64_t nvju_fast_ns(void);

/* Measures the counter's rate: once, before nvju_fast_ns is used. Takes 10 ms. */
void nvju_fast_clock_init(void);

/* Busy until nvju_fast_ns() has reached until_ns. */
void nvju_spin_until(uint64_t until_ns);

#endif
