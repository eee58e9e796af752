/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts what code writes to persistent memory without its help: a child process
 * is run one instruction at a time, and those that flush, fence or write past the
 * cache are counted. For libraries that bring their own instructions. x86-64 only.
 */
#ifndef BENCH_STEP_H
#define BENCH_STEP_H

#include <stdbool.h>
#include <stdint.h>

struct stepped {
	uint64_t instructions;
	uint64_t flushes;  /* clwb, clflushopt, clflush */
	uint64_t nt_bytes; /* written past the cache */
	uint64_t fences;   /* sfence, mfence */
};

/*
 * In a child, calls begin and then work, and counts what work does. False if this
 * is not possible here (another processor, no ptrace), or either returns not 0.
 */
bool step_through(int (*begin)(void *argument), int (*work)(void *argument), void *argument,
		  struct stepped *counts);

#endif
