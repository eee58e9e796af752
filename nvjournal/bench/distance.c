/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far apart the processors are. A virtual machine's are moved about by its host:
 * for seconds at a time a line's way from one to the other may take several times as
 * long. So the way is measured before and after each measurement of several threads;
 * only rounds in the same state are compared.
 */
#include "bench.h"

#include <math.h>
#include <unistd.h>

/* The best of so many passes: another program on a processor makes one of them long. */
#define PASSES 4u
#define TRIPS 2500u
/* Near: at most so many times as long as the shortest way of the run... */
#define APART 3.0
/*
 * ...and at most so many nanoseconds. In a run with one state alone the shortest way does
 * not say which it is. With a cache in common, ways of 35 to 80 ns were seen on the
 * machines of the developers; without one, 115 to 295 ns. (A multiple of an atomic
 * addition does not tell them apart: additions take 2 ns on one machine, 5 on another.)
 */
#define NEAR_NS 100.0
#define PATIENCE_NS 20e9
#define QUICK_PATIENCE_NS 1e9

struct pass {
	uint64_t word __attribute__((aligned(128)));
	unsigned other, trips;
};

/* The word goes to and fro: thread 0 makes it odd, the other one even. */
static int ping_pong(void *argument, unsigned number)
{
	struct pass *s = argument;
	unsigned odd = number == s->other;

	if (number && !odd)
		return 0;
	for (unsigned n = 0; n < s->trips; n++) {
		while ((__atomic_load_n(&s->word, __ATOMIC_ACQUIRE) & 1) != odd)
			;
		__atomic_store_n(&s->word, 2 * (uint64_t)n + 1 + odd, __ATOMIC_RELEASE);
	}
	return 0;
}

double line_transfer_ns(unsigned other, unsigned trips)
{
	static struct pass s;

	s.word = 0;
	s.other = other;
	s.trips = trips;
	return 1e9 * 0.5 * run_threads(other + 1, ping_pong, &s) / trips;
}

double distance_ns(struct bench *b, unsigned threads)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	double farthest = 0;

	if (processors < 2 || threads < 2)
		return 0;
	for (unsigned n = 0; n < STATES && b->nearest_ns == 0; n++)
		b->patience_ns[n] = b->quick ? QUICK_PATIENCE_NS : PATIENCE_NS;
	for (unsigned other = 1; other < threads && other < (unsigned)processors; other++) {
		double ns = line_transfer_ns(other, TRIPS);

		for (unsigned n = 1; n < PASSES; n++)
			ns = fmin(ns, line_transfer_ns(other, TRIPS));
		farthest = fmax(farthest, ns);
		b->nearest_ns = b->nearest_ns > 0 ? fmin(b->nearest_ns, ns) : ns;
	}
	return farthest;
}

enum nearness nearness_of(const struct bench *b, struct way way)
{
	double bound = fmin(APART * b->nearest_ns, NEAR_NS);

	if (way.before_ns <= 0 || way.after_ns <= 0)
		return NEITHER;
	if (way.before_ns <= bound && way.after_ns <= bound)
		return NEAR;
	return way.before_ns > bound && way.after_ns > bound ? APART : NEITHER;
}

bool may_wait_for(const struct bench *b, enum nearness state)
{
	return b->nearest_ns > 0 && b->patience_ns[state] > 0;
}

bool wait_for(struct bench *b, enum nearness state, unsigned threads)
{
	while (may_wait_for(b, state)) {
		uint64_t began = now_ns();
		double ns = distance_ns(b, threads);

		if (ns == 0)
			return false;
		if (nearness_of(b, (struct way){ns, ns}) == state)
			return true;
		usleep(20000);
		b->patience_ns[state] -= (double)(now_ns() - began);
	}
	return false;
}

unsigned pairs_of(const struct bench *b, const struct rounds *one, const struct rounds *two,
		  enum nearness state)
{
	unsigned pairs = 0;

	for (unsigned n = 0; n < one->count; n++)
		for (unsigned k = 0; k < two->count; k++)
			pairs += one->number[n] == two->number[k] &&
				 nearness_of(b, one->way[n]) == state &&
				 nearness_of(b, two->way[k]) == state;
	return pairs;
}

void json_rounds(struct bench *b, const struct rounds *rounds, const char *value, const char *other)
{
	json_open(b, "rounds", '[');
	for (unsigned n = 0; n < rounds->count; n++) {
		json_open(b, NULL, '{');
		json_number(b, "round", rounds->number[n]);
		json_number(b, value, rounds->value[n]);
		if (other)
			json_number(b, other, rounds->other[n]);
		json_number(b, "line_before_ns", rounds->way[n].before_ns);
		json_number(b, "line_after_ns", rounds->way[n].after_ns);
		json_close(b, '}');
	}
	json_close(b, ']');
}
