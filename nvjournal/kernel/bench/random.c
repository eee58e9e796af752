/* SPDX-License-Identifier: GPL-2.0 */
/* Random numbers, and random data to write. */
#include "load.h"

/* splitmix64: a counter and a mixing function, so each seed is good. */
static uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint32_t random_below(struct worker *worker, uint32_t bound)
{
	return (uint32_t)(((random_next(&worker->random) >> 32) * bound) >> 32);
}

uint64_t random_seed(const struct crew *crew, unsigned thread)
{
	return crew->seed * MAX_THREADS + thread;
}

void random_contents(struct crew *crew)
{
	uint64_t random = crew->seed;

	for (size_t i = 0; i < BUFFER_BYTES / sizeof(crew->content[0]); i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		crew->content[i] = random;
	}
}
