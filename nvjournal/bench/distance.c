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
#define ADDITIONS 200000u
/* Near: at most so many times as long as the shortest way of the run... */
#define APART 3.0
/*
 * ...and at most so many atomic additions. In a run with one state alone the shortest
 * way does not say which it is. With a cache in common a line's way takes 6 to 12
 * additions, without one 30 and more.
 */
#define NEAR_ADDITIONS 20.0
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

static int add(void *argument, unsigned number)
{
	uint64_t *word = argument;

	(void)number;
	for (unsigned n = 0; n < ADDITIONS; n++)
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void measure_addition(struct bench *b)
{
	uint64_t word __attribute__((aligned(128))) = 0;

	for (unsigned n = 0; n < 5; n++) {
		double ns = 1e9 * run_threads(1, add, &word) / ADDITIONS;

		b->add_ns = n ? fmin(b->add_ns, ns) : ns;
	}
	for (unsigned n = 0; n < STATES; n++)
		b->patience_ns[n] = b->quick ? QUICK_PATIENCE_NS : PATIENCE_NS;
}

double distance_ns(struct bench *b, unsigned threads)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	double farthest = 0;

	if (processors < 2 || threads < 2)
		return 0;
	if (b->add_ns == 0)
		measure_addition(b);
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
	double bound = fmin(APART * b->nearest_ns, NEAR_ADDITIONS * b->add_ns);

	if (way.before_ns <= 0 || way.after_ns <= 0)
		return NEITHER;
	if (way.before_ns <= bound && way.after_ns <= bound)
		return NEAR;
	return way.before_ns > bound && way.after_ns > bound ? APART : NEITHER;
}

bool may_wait_for(const struct bench *b, enum nearness state)
{
	return b->add_ns > 0 && b->patience_ns[state] > 0;
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
