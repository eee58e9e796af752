/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Division by a number that is fixed when the journal is opened.
 */
#ifndef NVJ_DIVISOR_H
#define NVJ_DIVISOR_H

#include <stdint.h>

struct nvj_divisor {
	uint64_t by;
	uint64_t reciprocal; /* (2^64 - 1) / by */
};

static inline struct nvj_divisor nvj_divisor(uint64_t by)
{
	return (struct nvj_divisor){.by = by, .reciprocal = UINT64_MAX / by};
}

/* n mod by. The quotient by the reciprocal is correct or one too small. */
static inline uint64_t nvj_remainder(const struct nvj_divisor *d, uint64_t n)
{
#ifdef __SIZEOF_INT128__
	uint64_t quotient = (uint64_t)((__extension__(unsigned __int128) n * d->reciprocal) >> 64);
	uint64_t rest = n - quotient * d->by;

	return rest >= d->by ? rest - d->by : rest;
#else
	return n % d->by;
#endif
}

#endif
