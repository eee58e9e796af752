/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks. clock_gettime takes 20 to 50 ns, which is too long to emulate a
 * latency of 100 ns. The time-stamp counter takes 10 ns. It is used where it is
 * invariant, and is calibrated once.
 */
#include <pthread.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

#include "clock.h"

#if defined(__x86_64__)
static double ns_per_tick; /* 0: the counter is not used */
#endif
static pthread_once_t calibrated = PTHREAD_ONCE_INIT;

uint64_t nvju_monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void calibrate(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;
	uint64_t began_ns, ended_ns, began;

	/*
	 * Invariant TSC: its rate is the same in every state of the processor.
	 */
	if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
		return;
	began_ns = nvju_monotonic_ns();
	began = __rdtsc();
	do
		ended_ns = nvju_monotonic_ns();
	while (ended_ns - began_ns < 10000000);
	ns_per_tick = (double)(ended_ns - began_ns) / (double)(__rdtsc() - began);
#endif
}

void nvju_fast_clock_init(void)
{
	pthread_once(&calibrated, calibrate);
}

uint64_t nvju_fast_ns(void)
{
#if defined(__x86_64__)
	if (ns_per_tick > 0)
		return (uint64_t)((double)__rdtsc() * ns_per_tick);
#endif
	return nvju_monotonic_ns();
}

void nvju_spin_until(uint64_t until_ns)
{
	while (nvju_fast_ns() < until_ns) {
#if defined(__x86_64__)
		_mm_pause();
#endif
	}
}
