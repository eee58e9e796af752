/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each round of the benchmark begins with another engine, also the further rounds, so that
 * none always runs first, or after the same one. Nothing is measured here.
 */
#include "bench/engines.c"

#include "expect.h"

static char order[256]; /* names of the engines that began with two threads */

static int begin(struct engine *e, const struct bench_setup *setup)
{
	if (setup->threads == 2)
		strcat(order, e->name);
	return 0;
}

static void end(struct engine *e)
{
	(void)e;
}

/* c needs no further rounds. What is stepped is not counted by a run of its own. */
struct engine engines[] = {
	{.name = "a", .open = begin, .close = end, .compared = true, .stepped = true},
	{.name = "b", .open = begin, .close = end, .compared = true, .stepped = true},
	{.name = "c", .open = begin, .close = end, .stepped = true},
	{.name = NULL}};

/* All rounds are made, and each further one. */
bool wait_for(struct bench *b, enum nearness state, unsigned threads)
{
	(void)b, (void)state, (void)threads;
	strcat(order, threads == 2 ? "+" : "");
	return true;
}

bool may_wait_for(const struct bench *b, enum nearness state)
{
	(void)b, (void)state;
	return true;
}

unsigned pairs_of(const struct bench *b, const struct rounds *one, const struct rounds *two,
		  enum nearness state)
{
	(void)b, (void)one, (void)two, (void)state;
	return 0;
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

uint8_t *worker_change(struct worker *worker, const struct update *update)
{
	(void)update;
	return worker->images;
}

void counted_init(struct counted *c, const struct nvj_persistence *inner)
{
	*c = (struct counted){.inner = inner};
}

bool step_through(int (*first)(void *argument), int (*work)(void *argument), void *argument,
		  struct stepped *counts)
{
	(void)first, (void)work, (void)argument, (void)counts;
	return false;
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

int main(void)
{
	static const struct nvj_region region;
	static struct operation operation;
	static struct bench b = {
		.region = &region,
		.stream_count = 1,
		.streams = {{.name = "create", .operations = &operation, .count = 1, .blocks = 1}},
		.rounds = 2};

	measure_streams(&b);
	expect(!strcmp(order, "abcbcacab+ab+ba+ab+ab"));
	return 0;
}
