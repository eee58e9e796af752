/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulated processors, each with one thread and a clock. The processor whose
 * clock is the earliest runs. It runs until it needs another processor's cache,
 * executes an atomic instruction, or waits. So the order of all transfers is
 * deterministic, and the clocks are a model of the time. The hooks of the
 * compiler's ThreadSanitizer instrumentation report each access to memory.
 */
#ifndef TRANSFERS_PROCESSORS_H
#define TRANSFERS_PROCESSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times in picoseconds. */
struct costs {
	uint64_t access_ps;   /* any access, with the instructions around it */
	uint64_t transfer_ps; /* a line, or the right to write it, from another processor */
	uint64_t drain_ps;    /* until a store past the caches is in memory */
};

struct counts {
	uint64_t accesses, fetches, upgrades, fills;
	uint64_t fences, lines_written;
	uint64_t locked, locked_ps; /* of the one lock: how often, and for how long */
};

/* The most processors. */
#define PROCESSORS 64u

void processors_set(const struct costs *costs);
/*
 * Runs work(argument, n) on each of count processors. Returns the picoseconds
 * until the last has ended.
 */
uint64_t processors_run(unsigned count, int (*work)(void *argument, unsigned n), void *argument);
/* Since the last reset. */
struct counts processors_counts(void);
void processors_count_again(void);

/* Of the processor that runs. Outside of any, they do nothing. */
void processor_access(const void *address, size_t bytes, bool store);
void processor_atomic(const void *address, bool store);
/* The line will be written soon: it is fetched meanwhile. */
void processor_prefetch(const void *address);
void processor_bypass(const void *address, size_t bytes);
void processor_fence(void);
void processor_pass(uint64_t ps);
unsigned processor_self(void);
uint64_t processor_now_ps(void);
/* As a futex. */
void processor_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void processor_wake(const uint32_t *word);

/*
 * A lock at its best: the threads that wait take it in the order in which they
 * came, and no thread but its next owner touches its line.
 */
struct queue_lock;
void processor_lock(struct queue_lock *lock);
void processor_unlock(struct queue_lock *lock);

#endif
