/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A hash of block numbers. Its low bits are as well distributed as its high
 * ones.
 */
#ifndef NVJ_HASH_H
#define NVJ_HASH_H

#include <stdint.h>

static inline uint64_t nvj_hash(uint64_t block)
{
	/*
	 * Fibonacci hashing: 2^64 / golden ratio. The high half is well
	 * distributed.
	 */
	block *= UINT64_C(0x9e3779b97f4a7c15);
	return block ^ block >> 32;
}

#endif
