/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that are the same on every machine for the same seed, so that
 * each failure of a test can be had again.
 */
#ifndef TEST_RANDOM_H
#define TEST_RANDOM_H

#include <stdint.h>

struct random {
	uint64_t state;
};

/* A good hash of 64 bits (the finisher of splitmix64). */
static inline uint64_t random_mix(uint64_t x)
{
	x ^= x >> 30;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static inline struct random random_from(uint64_t seed)
{
	return (struct random){random_mix(seed + UINT64_C(0x9e3779b97f4a7c15))};
}

static inline uint64_t random_next(struct random *r)
{
	r->state += UINT64_C(0x9e3779b97f4a7c15);
	return random_mix(r->state);
}

/* 0 .. below - 1; below is 1 or more. */
static inline uint32_t random_below(struct random *r, uint32_t below)
{
	return (uint32_t)(((random_next(r) >> 32) * below) >> 32);
}

/* True once in n. */
static inline int random_once_in(struct random *r, uint32_t n)
{
	return random_below(r, n) == 0;
}

#endif
