/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK_BYTES (192u * 1024)
#define POINT_NS 50u

enum state { READY, ASLEEP, ENDED };

struct thread {
	ucontext_t context;
	void *stack;
	const char *name;
	const char *doing;
	void (*run)(void *argument);
	void *argument;
	enum state state;
	uint32_t gone;        /* 1 once it has ended: others wait for that */
	const uint32_t *word; /* it sleeps at */
	uint64_t deadline_ns; /* 0: none */
	uint32_t priority;
};

struct schedule {
	ucontext_t outside;
	struct thread thread[SCHEDULE_MAX_THREADS];
	unsigned threads, running, ended;
	struct random random;
	uint64_t points, limit, now_ns;
	uint32_t switch_once_in;
	bool by_priority;
	uint32_t in_turn; /* points since the last switch */
	uint32_t stall_once_in, stall_points;
	enum schedule_end end;
};

/* One runs at a time, also of schedulers. */
static struct schedule *current;

struct schedule *schedule_new(uint64_t seed, uint64_t point_limit)
{
	static const uint32_t often[] = {1, 2, 3, 8, 20, 100};
	struct schedule *s = calloc(1, sizeof(*s));

	if (s == NULL)
		abort();
	s->random = random_from(seed);
	s->limit = point_limit;
	s->switch_once_in = often[random_below(&s->random, 6)];
	/* Some runs by priorities that seldom change: long delays of one thread. */
	s->by_priority = random_once_in(&s->random, 3);
	return s;
}

void schedule_stalls(struct schedule *s, uint32_t once_in, uint32_t points)
{
	s->stall_once_in = once_in;
	s->stall_points = points;
}

void schedule_free(struct schedule *s)
{
	for (unsigned i = 0; i < s->threads; i++)
		munmap(s->thread[i].stack, STACK_BYTES);
	free(s);
}

static void begin(void)
{
	struct thread *t = &current->thread[current->running];

	t->run(t->argument);
	t->gone = 1;
	for (unsigned i = 0; i < current->threads; i++)
		if (current->thread[i].state == ASLEEP && current->thread[i].word == &t->gone)
			current->thread[i].state = READY;
	t->state = ENDED;
	current->ended++;
	/* The scheduler's own loop finds the next; this stack is done. */
	setcontext(&current->outside);
}

unsigned schedule_spawn(struct schedule *s, const char *name, void (*run)(void *argument),
			void *argument)
{
	struct thread *t = &s->thread[s->threads];

	if (s->threads == SCHEDULE_MAX_THREADS)
		abort();
	t->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (t->stack == MAP_FAILED)
		abort();
	t->name = name;
	t->doing = "";
	t->run = run;
	t->argument = argument;
	t->state = READY;
	t->priority = random_below(&s->random, 1u << 30);
	getcontext(&t->context);
	t->context.uc_stack.ss_sp = t->stack;
	t->context.uc_stack.ss_size = STACK_BYTES;
	t->context.uc_link = NULL;
	makecontext(&t->context, begin, 0);
	return s->threads++;
}

/* Wakes whose time has come. */
static void wake_due(struct schedule *s)
{
	for (unsigned i = 0; i < s->threads; i++) {
		struct thread *t = &s->thread[i];

		if (t->state == ASLEEP && t->deadline_ns != 0 && t->deadline_ns <= s->now_ns)
			t->state = READY;
	}
}

/* Who is next: a number, or -1 if all sleep for good. */
static int choose(struct schedule *s)
{
	unsigned ready[SCHEDULE_MAX_THREADS], count = 0;

	for (;;) {
		uint64_t soonest = 0;

		for (unsigned i = 0; i < s->threads; i++) {
			struct thread *t = &s->thread[i];

			if (t->state == READY)
				ready[count++] = i;
			else if (t->state == ASLEEP && t->deadline_ns != 0 &&
				 (soonest == 0 || t->deadline_ns < soonest))
				soonest = t->deadline_ns;
		}
		if (count > 0 || soonest == 0)
			break;
		s->now_ns = soonest;
		wake_due(s);
	}
	if (count == 0)
		return -1;
	if (s->by_priority && !random_once_in(&s->random, 16)) {
		unsigned best = ready[0];

		for (unsigned i = 1; i < count; i++)
			if (s->thread[ready[i]].priority > s->thread[best].priority)
				best = ready[i];
		return (int)best;
	}
	return (int)ready[random_below(&s->random, count)];
}

/* Gives the turn to another, or to the same again. */
static void turn(struct schedule *s)
{
	unsigned self = s->running;
	int next = choose(s);

	s->in_turn = 0;
	if (next < 0) {
		s->end = SCHEDULE_DEADLOCK;
		swapcontext(&s->thread[self].context, &s->outside);
		return;
	}
	if ((unsigned)next == self)
		return;
	s->running = (unsigned)next;
	swapcontext(&s->thread[self].context, &s->thread[next].context);
}

enum schedule_end schedule_run(struct schedule *s)
{
	struct schedule *before = current;

	current = s;
	while (s->ended < s->threads && s->end == SCHEDULE_DONE) {
		int next = choose(s);

		if (next < 0) {
			s->end = SCHEDULE_DEADLOCK;
			break;
		}
		s->running = (unsigned)next;
		swapcontext(&s->outside, &s->thread[next].context);
	}
	current = before;
	return s->end;
}

/* As asleep at no word: the time alone wakes it. */
static void stall(struct schedule *s)
{
	struct thread *t = &s->thread[s->running];

	t->state = ASLEEP;
	t->deadline_ns = s->now_ns + POINT_NS * (1 + random_below(&s->random, s->stall_points));
	turn(s);
}

void schedule_point(void)
{
	struct schedule *s = current;

	if (s == NULL)
		return;
	s->now_ns += POINT_NS;
	if (++s->points > s->limit) {
		s->end = SCHEDULE_HANG;
		swapcontext(&s->thread[s->running].context, &s->outside);
		return;
	}
	if (s->points % 64 == 0)
		wake_due(s);
	if (s->stall_once_in != 0 && random_once_in(&s->random, s->stall_once_in)) {
		stall(s);
		return;
	}
	/* Whoever spins gives way in the end, whatever its priority. */
	if (++s->in_turn > 2000) {
		s->thread[s->running].priority /= 2;
		turn(s);
	} else if (s->by_priority) {
		if (random_once_in(&s->random, 200)) {
			s->thread[s->running].priority = random_below(&s->random, 1u << 30);
			turn(s);
		}
	} else if (random_once_in(&s->random, s->switch_once_in)) {
		turn(s);
	}
}

void nvj_schedule_point(void)
{
	schedule_point();
}

unsigned schedule_self(void)
{
	return current != NULL ? current->running : 0;
}

uint64_t schedule_now_ns(void)
{
	return current != NULL ? ++current->now_ns : 0;
}

void schedule_wait(const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct schedule *s = current;
	struct thread *t;

	if (s == NULL) {
		fprintf(stderr, "a wait outside of any thread would never end\n");
		abort();
	}
	schedule_point();
	if (__atomic_load_n(word, __ATOMIC_RELAXED) != expected)
		return;
	t = &s->thread[s->running];
	/* It may return early, the platform says; so now and then it does. */
	if (random_once_in(&s->random, 50))
		return;
	t->state = ASLEEP;
	t->word = word;
	t->deadline_ns = timeout_ns != 0 ? s->now_ns + timeout_ns : 0;
	turn(s);
	t->word = NULL;
}

void schedule_wake(const uint32_t *word)
{
	struct schedule *s = current;

	if (s == NULL)
		return;
	for (unsigned i = 0; i < s->threads; i++)
		if (s->thread[i].state == ASLEEP && s->thread[i].word == word)
			s->thread[i].state = READY;
	schedule_point();
}

void schedule_join(unsigned n)
{
	while (current->thread[n].gone == 0)
		schedule_wait(&current->thread[n].gone, 0, 0);
}

void schedule_doing(const char *what)
{
	if (current != NULL)
		current->thread[current->running].doing = what;
}

uint64_t schedule_points(const struct schedule *s)
{
	return s->points;
}

void schedule_print(const struct schedule *s)
{
	static const char *const names[] = {"ready", "asleep", "ended"};

	fprintf(stderr, "%s after %llu points; thread %u had the turn\n",
		s->end == SCHEDULE_DEADLOCK ? "deadlock"
		: s->end == SCHEDULE_HANG   ? "hang"
					    : "done",
		(unsigned long long)s->points, s->running);
	for (unsigned i = 0; i < s->threads; i++) {
		const struct thread *t = &s->thread[i];

		fprintf(stderr, "  thread %u %s: %s %s", i, t->name, names[t->state], t->doing);
		if (t->state == ASLEEP && t->word != NULL)
			fprintf(stderr, ", at word %p, which is %u", (const void *)t->word,
				*t->word);
		fprintf(stderr, "\n");
	}
}
