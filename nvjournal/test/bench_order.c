/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each round of the benchmark begins with another engine, also the further rounds, so that
 * none always runs first, or after the same one. Nothing is measured here.
 */
#include "bench/engines.c"

#include "bench_stubs.h"
#include "expect.h"

static char order[256]; /* initials of the engines that began with two threads */

static int begin(struct engine *e, const struct bench_setup *setup)
{
	if (setup->threads == 2)
		strncat(order, e->name, 1);
	return 0;
}

static void end(struct engine *e)
{
	(void)e;
}

/* c needs no further rounds. What is stepped is not counted by a run of its own. */
struct engine engines[] = {
	{.name = "nvjournal-cpu", .open = begin, .close = end, .compared = true, .stepped = true},
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

unsigned pairs_of(const struct bench *b, const struct rounds *one, const struct rounds *two,
		  enum nearness state)
{
	(void)b, (void)state;
	expect(one == two); /* nvjournal-cpu and the first engine, which lacks rounds */
	return 0;
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
	expect(!strcmp(order, "nbcbcncnb+nb+bn+nb+nb"));
	/* Alone it has no pair with nvjournal-cpu, however many rounds there are. */
	order[0] = 0;
	b.engine = "b";
	measure_streams(&b);
	expect(!strcmp(order, "bbb"));
	return 0;
}
