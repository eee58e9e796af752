/* SPDX-License-Identifier: Apache-2.0 */
/* In place of what the parts of the benchmark share: nothing is measured or printed. */
#ifndef TEST_BENCH_STUBS_H
#define TEST_BENCH_STUBS_H

#include <stdlib.h>

#include "bench/bench.h"

bool may_wait_for(const struct bench *b, enum nearness state)
{
	(void)b, (void)state;
	return true;
}

double run_threads(unsigned count, int (*work)(void *argument, unsigned n), void *argument)
{
	(void)count, (void)work, (void)argument;
	return 1;
}

double distance_ns(struct bench *b, unsigned threads)
{
	(void)b, (void)threads;
	return 0;
}

uint64_t now_ns(void)
{
	return 0;
}

void *must_allocate(size_t bytes)
{
	return calloc(1, bytes);
}

void json_open(struct bench *b, const char *key, char bracket)
{
	(void)b, (void)key, (void)bracket;
}

void json_close(struct bench *b, char bracket)
{
	(void)b, (void)bracket;
}

void json_number(struct bench *b, const char *key, double value)
{
	(void)b, (void)key, (void)value;
}

void json_text(struct bench *b, const char *key, const char *value)
{
	(void)b, (void)key, (void)value;
}

void json_rounds(struct bench *b, const struct rounds *rounds, const char *value, const char *other)
{
	(void)b, (void)rounds, (void)value, (void)other;
}

#endif
