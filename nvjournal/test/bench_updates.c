/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Further rounds of updates are made until the two subjects have pairs whose ratio the page
 * has. Nothing is measured here.
 */
#include "bench/updates.c"

#include "bench_stubs.h"
#include "expect.h"

static struct rounds all[SUBJECTS];

unsigned pairs_of(const struct bench *b, const struct rounds *one, const struct rounds *two,
		  enum nearness state)
{
	(void)b, (void)state;
	expect(!strcmp(subjects[one - all].name, "nvjournal-cpu"));
	expect(!strcmp(subjects[two - all].name, "one-lock"));
	return state == NEAR ? WANTED_PAIRS : WANTED_PAIRS - 1;
}

bool wait_for(struct bench *b, enum nearness state, unsigned threads)
{
	(void)b, (void)state, (void)threads;
	return false;
}

unsigned short_rounds(const struct bench *b)
{
	return b->rounds;
}

void baseline_lock_init(pthread_mutex_t *lock)
{
	(void)lock;
}

void journal_begin(struct bench *b, struct test_journal *t, const struct journal_options *o)
{
	(void)b, (void)t, (void)o;
}

void journal_end(struct test_journal *t)
{
	(void)t;
}

int main(void)
{
	static const struct bench b;

	expect(lacking(&b, all) == APART);
	return 0;
}
