/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far apart the processors are. A virtual machine's are moved about by its host:
 * for seconds at a time a line's way from one to the other may take several times as
 * long. What threads do together is measured in both states, and told for each.
 */
#include "bench.h"

#include <unistd.h>

#define TRIPS 10000u
/* The processors are apart while a line takes so many times as long as it did at best. */
#define APART 3.0

struct pass {
	uint64_t word __attribute__((aligned(128)));
	unsigned trips;
};

/* The word goes to and fro: thread 0 makes it odd, thread 1 even. */
static int ping_pong(void *argument, unsigned number)
{
	struct pass *s = argument;

	for (unsigned n = 0; n < s->trips; n++) {
		while ((__atomic_load_n(&s->word, __ATOMIC_ACQUIRE) & 1) != number)
			;
		__atomic_store_n(&s->word, 2 * (uint64_t)n + 1 + number, __ATOMIC_RELEASE);
	}
	return 0;
}

double line_transfer_ns(unsigned trips)
{
	static struct pass s;

	s.word = 0;
	s.trips = trips;
	return 1e9 * 0.5 * run_threads(2, ping_pong, &s) / trips;
}

double distance_ns(struct bench *b)
{
	double ns;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return 0;
	ns = line_transfer_ns(TRIPS);
	if (b->nearest_ns == 0 || ns < b->nearest_ns)
		b->nearest_ns = ns;
	return ns;
}

struct apart apart_of(const struct bench *b, const double *values, const double *distance,
		      unsigned count)
{
	double near[MAX_ROUNDS] = {0}, apart[MAX_ROUNDS] = {0};
	struct apart s = {0};
	unsigned near_rounds = 0;

	for (unsigned n = 0; n < count; n++)
		if (distance[n] > APART * b->nearest_ns)
			apart[s.rounds++] = values[n];
		else
			near[near_rounds++] = values[n];
	s.near = near_rounds ? spread_of(near, near_rounds) : spread_of(apart, s.rounds);
	if (s.rounds)
		s.apart = spread_of(apart, s.rounds);
	return s;
}
