/* SPDX-License-Identifier: Apache-2.0 */
#include "processors.h"

#include "cache.h"
#include "traced.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK_BYTES (512u * 1024)
#define NEVER UINT64_MAX
/* Of a system call that puts a thread to sleep, or wakes one. */
#define SLEEP_PS UINT64_C(1500000)
/*
 * The lines of one copy are fetched at the same time, up to so many. Each further
 * line then takes the transfer's time divided by this.
 */
#define TOGETHER 8u

struct processor {
	ucontext_t context;
	void *stack;
	uint64_t now_ps;
	uint64_t drained_ps; /* when all its stores are complete */
	const uint32_t *word;
	const struct queue_lock *lock; /* it waits for */
	uint64_t came;                 /* since when, as a number */
	bool asleep, ended;
};

static struct processor processors[PROCESSORS];
static unsigned count;
static int running = -1;
static uint64_t next_ps; /* the earliest clock of the others */
static struct costs costs;
static struct counts counts;
static ucontext_t outside;
static uint64_t arrivals;

static int (*work)(void *argument, unsigned n);
static void *argument;

void processors_set(const struct costs *c)
{
	costs = *c;
}

struct counts processors_counts(void)
{
	return counts;
}

void processors_count_again(void)
{
	counts = (struct counts){0};
	cache_count_again();
}

/* The processor that runs next; -1: none can. */
static int earliest(void)
{
	int first = -1;

	next_ps = NEVER;
	for (unsigned n = 0; n < count; n++) {
		struct processor *p = &processors[n];

		if (p->ended || p->now_ps == NEVER)
			continue;
		if (first < 0 || p->now_ps < processors[first].now_ps) {
			if (first >= 0)
				next_ps = processors[first].now_ps;
			first = (int)n;
		} else if (p->now_ps < next_ps) {
			next_ps = p->now_ps;
		}
	}
	return first;
}

static void run_next(void)
{
	int self = running, next = earliest();

	if (next < 0) {
		fprintf(stderr, "transfers: all simulated processors wait for ever\n");
		exit(2);
	}
	processors[next].asleep = false;
	if (next == self)
		return;
	running = next;
	if (self < 0)
		swapcontext(&outside, &processors[next].context);
	else
		swapcontext(&processors[self].context, &processors[next].context);
}

/* Lets the processors run whose clocks are earlier. */
static void let_earlier(void)
{
	if (processors[running].now_ps > next_ps)
		run_next();
}

static void begin(void)
{
	int self = running;

	if (work(argument, (unsigned)self)) {
		fprintf(stderr, "transfers: an operation failed\n");
		exit(2);
	}
	processors[self].ended = true;
	for (unsigned n = 0; n < count; n++)
		if (!processors[n].ended) {
			run_next();
			return; /* never: an ended processor does not run */
		}
	running = -1;
	setcontext(&outside);
}

uint64_t processors_run(unsigned how_many, int (*what)(void *argument, unsigned n), void *of)
{
	uint64_t last = 0;

	work = what;
	argument = of;
	count = how_many;
	for (unsigned n = 0; n < count; n++) {
		struct processor *p = &processors[n];
		void *stack = p->stack;

		if (!stack)
			stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (stack == MAP_FAILED) {
			fprintf(stderr, "transfers: no memory for a stack\n");
			exit(2);
		}
		*p = (struct processor){.stack = stack};
		getcontext(&p->context);
		p->context.uc_stack.ss_sp = stack;
		p->context.uc_stack.ss_size = STACK_BYTES;
		makecontext(&p->context, begin, 0);
	}
	run_next();
	running = -1;
	for (unsigned n = 0; n < count; n++)
		last = processors[n].now_ps > last ? processors[n].now_ps : last;
	return last;
}

/* One line. Of a range, further lines are fetched while the first one comes. */
static void access_line(struct processor *p, uintptr_t address, enum access access, bool further)
{
	struct line *line = cache_line(address);
	enum outcome outcome = cache_access(line, (unsigned)running, access);
	uint64_t begin_ps, takes_ps = costs.transfer_ps;

	switch (outcome) {
	case HIT:
		/* It may still be on its way. */
		if (access != STORE && line->to == running && line->ready_ps > p->now_ps)
			p->now_ps = line->ready_ps;
		return;
	case FILL:
		counts.fills++;
		return; /* once for each line: no part of a steady state */
	case FETCH:
		counts.fetches++;
		break;
	case UPGRADE:
		counts.upgrades++;
		break;
	}
	if (further)
		takes_ps /= TOGETHER;
	begin_ps = line->ready_ps > p->now_ps ? line->ready_ps : p->now_ps;
	line->ready_ps = begin_ps + takes_ps;
	/* A store waits in the store buffer. The processor goes on. */
	if (access == STORE) {
		if (line->ready_ps > p->drained_ps)
			p->drained_ps = line->ready_ps;
	} else {
		p->now_ps = line->ready_ps;
	}
	let_earlier();
}

void processor_access(const void *address, size_t bytes, bool store)
{
	uintptr_t at = (uintptr_t)address, end = at + bytes;
	struct processor *p;

	if (running < 0 || !bytes)
		return;
	p = &processors[running];
	counts.accesses += (bytes + 15) / 16;
	p->now_ps += costs.access_ps * ((bytes + 15) / 16);
	for (bool further = false; at < end; further = true) {
		access_line(p, at, store ? STORE : LOAD, further);
		at = (at & ~(uintptr_t)(CACHE_LINE_BYTES - 1)) + CACHE_LINE_BYTES;
	}
}

void processor_atomic(const void *address, bool store)
{
	struct processor *p;

	if (running < 0)
		return;
	p = &processors[running];
	counts.accesses++;
	p->now_ps += costs.access_ps;
	let_earlier();
	/* An atomic instruction that stores waits for all earlier stores. */
	if (store && p->drained_ps > p->now_ps)
		p->now_ps = p->drained_ps;
	access_line(p, (uintptr_t)address, store ? UPDATE : LOAD, false);
}

void processor_prefetch(const void *address)
{
	struct processor *p;
	struct line *line;
	enum outcome outcome;

	if (running < 0)
		return;
	p = &processors[running];
	p->now_ps += costs.access_ps;
	line = cache_line((uintptr_t)address);
	outcome = cache_access(line, (unsigned)running, STORE);
	if (outcome != FETCH && outcome != UPGRADE)
		return;
	counts.fetches += outcome == FETCH;
	counts.upgrades += outcome == UPGRADE;
	line->ready_ps =
		(line->ready_ps > p->now_ps ? line->ready_ps : p->now_ps) + costs.transfer_ps;
	let_earlier();
}

void processor_bypass(const void *address, size_t bytes)
{
	uintptr_t at = (uintptr_t)address & ~(uintptr_t)(CACHE_LINE_BYTES - 1);
	struct processor *p;

	if (running < 0)
		return;
	p = &processors[running];
	for (; at < (uintptr_t)address + bytes; at += CACHE_LINE_BYTES) {
		cache_bypass(cache_line(at));
		counts.lines_written++;
		p->now_ps += 8 * costs.access_ps;
	}
	if (p->now_ps + costs.drain_ps > p->drained_ps)
		p->drained_ps = p->now_ps + costs.drain_ps;
}

void processor_fence(void)
{
	struct processor *p;

	if (running < 0)
		return;
	p = &processors[running];
	counts.fences++;
	if (p->drained_ps > p->now_ps)
		p->now_ps = p->drained_ps;
	let_earlier();
}

void processor_pass(uint64_t ps)
{
	if (running < 0)
		return;
	processors[running].now_ps += ps;
	let_earlier();
}

unsigned processor_self(void)
{
	return running < 0 ? 0 : (unsigned)running;
}

uint64_t processor_now_ps(void)
{
	return running < 0 ? 0 : processors[running].now_ps;
}

/* Sleeps until now_ps is lowered, or comes. */
static void sleep_until(struct processor *p, uint64_t ps)
{
	p->now_ps = ps;
	p->asleep = true;
	run_next();
}

void processor_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct processor *p;

	if (running < 0)
		return;
	p = &processors[running];
	processor_atomic(word, false);
	processor_pass(SLEEP_PS);
	if (__atomic_load_n(word, __ATOMIC_RELAXED) != expected)
		return;
	p->word = word;
	sleep_until(p, timeout_ns ? p->now_ps + 1000 * timeout_ns : NEVER);
	p->word = NULL;
}

void processor_wake(const uint32_t *word)
{
	uint64_t now;

	if (running < 0)
		return;
	processor_pass(SLEEP_PS);
	now = processors[running].now_ps;
	for (unsigned n = 0; n < count; n++) {
		struct processor *p = &processors[n];

		if (p->asleep && p->word == word && p->now_ps > now + SLEEP_PS)
			p->now_ps = now + SLEEP_PS;
	}
	(void)earliest();
	let_earlier();
}

void processor_lock(struct queue_lock *lock)
{
	struct processor *p;

	if (running < 0)
		return;
	p = &processors[running];
	let_earlier();
	if (lock->taken) {
		p->lock = lock;
		p->came = arrivals++;
		sleep_until(p, NEVER);
		p->lock = NULL;
	}
	lock->taken = true;
	processor_atomic(&lock->line, true);
	lock->since_ps = p->now_ps;
}

void processor_unlock(struct queue_lock *lock)
{
	struct processor *first = NULL, *self;

	if (running < 0)
		return;
	self = &processors[running];
	processor_atomic(&lock->line, true);
	counts.locked++;
	counts.locked_ps += self->now_ps - lock->since_ps;
	lock->taken = false;
	for (unsigned n = 0; n < count; n++) {
		struct processor *p = &processors[n];

		if (p->lock == lock && (!first || p->came < first->came))
			first = p;
	}
	if (first) {
		lock->taken = true; /* by the one that is next */
		first->now_ps = self->now_ps;
		(void)earliest();
	}
	let_earlier();
}
