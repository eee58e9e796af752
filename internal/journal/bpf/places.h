/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Places: most lookups in a hash map are avoided by an array in front of it. A key
 * has one place in the array, chosen by its hash. The place belongs to the first
 * key that takes it; other keys of the same place are in the hash map. Taking a
 * place needs atomic operations: the compilation for older kernels uses only the
 * hash maps. The arrays are global variables, because to find a place in one takes a
 * third of the instructions that an array map takes.
 */
#ifndef DAYBOOK_PLACES_H
#define DAYBOOK_PLACES_H

#include "kernel.h"

#ifdef UNTYPED_TASK
#define FILESYSTEM_PLACES_LOG2 0
#define CHARGED_PLACES_LOG2 0
#define WORKER_PLACES_LOG2 0
#else
#define FILESYSTEM_PLACES_LOG2 8
#define CHARGED_PLACES_LOG2 9
#define WORKER_PLACES_LOG2 10
#endif

/* The states of a place; user space frees it. */
#define PLACE_FREE 0
#define PLACE_TAKEN 1
#define PLACE_READY 2

/* Returns the place of a key among 2^bits. */
static __always_inline __u64 place_of(__u64 key, __u32 bits)
{
	return key * 0x9e3779b97f4a7c15ULL >> (64 - bits);
}

#endif
