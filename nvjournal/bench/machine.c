/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the contention model is calibrated with: an atomic addition alone and
 * against another processor, a cache line's way to the other processor, a mutex
 * alone and against another, held for no time and for that of a record.
 */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>

#define TIMES 300000u
#define QUICK_TIMES 100000u
/* Multiplications: some 200 ns. */
#define HOLD 200u

struct shared {
	uint64_t word __attribute__((aligned(128)));
	pthread_mutex_t lock __attribute__((aligned(128)));
	uint64_t under_lock __attribute__((aligned(128)));
	unsigned times;
};

static int add(void *argument, unsigned number)
{
	struct shared *s = argument;

	(void)number;
	for (unsigned n = 0; n < s->times; n++)
		__atomic_fetch_add(&s->word, 5, __ATOMIC_SEQ_CST);
	return 0;
}

static int lock(void *argument, unsigned number)
{
	struct shared *s = argument;

	(void)number;
	for (unsigned n = 0; n < s->times; n++) {
		pthread_mutex_lock(&s->lock);
		s->under_lock++;
		pthread_mutex_unlock(&s->lock);
	}
	return 0;
}

/* As long under the lock as a record takes: a chain of multiplications. */
static int hold(void *argument, unsigned number)
{
	struct shared *s = argument;

	(void)number;
	for (unsigned n = 0; n < s->times; n++) {
		uint64_t value;

		pthread_mutex_lock(&s->lock);
		value = ++s->under_lock;
		for (unsigned k = 0; k < HOLD; k++)
			value = value * UINT64_C(0x9e3779b97f4a7c15) + 1;
		s->under_lock = value;
		pthread_mutex_unlock(&s->lock);
	}
	return 0;
}

static const struct {
	const char *name;
	int (*work)(void *argument, unsigned number);
	unsigned threads;
	/* Seconds over times, by so many, are those of one. */
	double each;
} subjects[] = {
	{"add_alone_ns", add, 1, 1},        {"add_contended_ns", add, 2, 0.5},
	{"line_transfer_ns", NULL, 2, 0.5}, /* distance.c */
	{"lock_alone_ns", lock, 1, 1},      {"lock_contended_ns", lock, 2, 0.5},
	{"lock_held_alone_ns", hold, 1, 1}, {"lock_held_contended_ns", hold, 2, 0.5},
};
#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

void measure_machine(struct bench *b)
{
	unsigned rounds = short_rounds(b);
	static double ns[SUBJECTS][MAX_ROUNDS];
	static struct way way[MAX_ROUNDS];
	struct shared *s = must_allocate(sizeof(*s));

	s->times = b->quick ? QUICK_TIMES : TIMES;
	baseline_lock_init(&s->lock);
	for (unsigned round = 0; round <= rounds; round++) {
		unsigned at = round ? round - 1 : 0; /* the first one warms up */

		way[at].before_ns = distance_ns(b, 2);
		for (unsigned n = 0; n < SUBJECTS; n++) {
			s->word = 0;
			if (!subjects[n].work) {
				ns[n][at] = line_transfer_ns(1, s->times);
				continue;
			}
			ns[n][at] = 1e9 * subjects[n].each *
				    run_threads(subjects[n].threads, subjects[n].work, s) /
				    s->times;
		}
		way[at].after_ns = distance_ns(b, 2);
	}
	json_open(b, "machine", '[');
	for (unsigned round = 0; round < rounds; round++) {
		json_open(b, NULL, '{');
		json_number(b, "round", round + 1);
		for (unsigned n = 0; n < SUBJECTS; n++)
			json_number(b, subjects[n].name, ns[n][round]);
		json_number(b, "line_before_ns", way[round].before_ns);
		json_number(b, "line_after_ns", way[round].after_ns);
		json_close(b, '}');
	}
	json_close(b, ']');
	free(s);
}
