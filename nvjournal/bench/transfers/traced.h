/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included before each file whose accesses are traced. The compiler reports loads
 * and stores, but no copies; so these are functions here. A mutex is one of the
 * simulation.
 */
#ifndef TRANSFERS_TRACED_H
#define TRANSFERS_TRACED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *traced_copy(void *to, const void *from, size_t bytes);
void *traced_set(void *to, int value, size_t bytes);
int traced_compare(const void *a, const void *b, size_t bytes);

struct queue_lock {
	bool taken; /* what the simulation knows, outside of the simulated memory */
	uint64_t since_ps;
	uint64_t line __attribute__((aligned(64)));
} __attribute__((aligned(64)));
void processor_lock(struct queue_lock *lock);
void processor_unlock(struct queue_lock *lock);

#ifdef TRANSFERS_TRACED
#if __STDC_HOSTED__
#include <pthread.h>
#include <string.h>
#endif
#define memcpy traced_copy
#define memset traced_set
#define __builtin_memcpy traced_copy
#define __builtin_memset traced_set
#define __builtin_memcmp traced_compare
#define pthread_mutex_t struct queue_lock
#define pthread_mutex_init(lock, attributes) (*(lock) = (struct queue_lock){0})
#define pthread_mutex_destroy(lock) ((void)(lock))
#define pthread_mutex_lock processor_lock
#define pthread_mutex_unlock processor_unlock
#endif

#endif
