/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler for threads that run one at a time, in turns that a seed decides:
 * each interleaving can be had again. A thread may lose its turn at each point:
 * each call of the platform, each store to the region, and, in a build with
 * -DNVJ_SCHEDULE, each atomic operation of the core. Time passes only as points
 * do, and when all sleep. That nobody can go on is found, and told.
 */
#ifndef TEST_SCHEDULE_H
#define TEST_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#define SCHEDULE_MAX_THREADS 40u

enum schedule_end {
	SCHEDULE_DONE = 0,
	SCHEDULE_DEADLOCK, /* all sleep, and nobody will wake them */
	SCHEDULE_HANG,     /* more points than the limit */
};

struct schedule;

/* Turns by the seed; a run of more than point_limit points is a hang. */
struct schedule *schedule_new(uint64_t seed, uint64_t point_limit);
void schedule_free(struct schedule *s);

/*
 * Now and then, one point in once_in (0: never), the thread that runs loses its
 * processor for as long as up to points take, or until all others sleep.
 */
void schedule_stalls(struct schedule *s, uint32_t once_in, uint32_t points);

/* A thread; its number counts from 0. May be called by a thread, too. */
unsigned schedule_spawn(struct schedule *s, const char *name, void (*run)(void *argument),
			void *argument);

/* Runs all threads to their end. */
enum schedule_end schedule_run(struct schedule *s);

/* Prints who is where, to stderr. */
void schedule_print(const struct schedule *s);

/* Points gone by. */
uint64_t schedule_points(const struct schedule *s);

/* Of the thread that runs; outside of any, they do nothing or return 0. */
void schedule_point(void);
unsigned schedule_self(void);
uint64_t schedule_now_ns(void);
/* As struct nvj_platform's wait and wake. */
void schedule_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void schedule_wake(const uint32_t *word);
/* Sleeps until thread number n has ended. */
void schedule_join(unsigned n);
/* What core/atomic.h calls with -DNVJ_SCHEDULE. */
void nvj_schedule_point(void);
/* What the thread is doing, for schedule_print: a text that stays. */
void schedule_doing(const char *what);

#endif
