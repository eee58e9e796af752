/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Persistence that counts what goes through it, on its way to another: for
 * rounds of their own, as counting takes time.
 */
#ifndef BENCH_COUNT_H
#define BENCH_COUNT_H

#include "nvjournal.h"

struct counted {
	struct nvj_persistence table; /* first: it is what the engines get */
	const struct nvj_persistence *inner;
	uint64_t bytes;   /* written, in whole lines */
	uint64_t flushes; /* of lines: written past the cache, or flushed */
	uint64_t fences;
};

void counted_init(struct counted *c, const struct nvj_persistence *inner);

#endif
