/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What jfsnvj keeps of JFS's free locks and transactions for each processor is never lost
 * and never taken twice, and goes to JFS's list when few are left there. This compiles the
 * file of the kernel that keeps them, kernel/jfs/free.c.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/expect.h"

/* --- As in the kernel ------------------------------------------------------------- */

typedef uint16_t u16;

enum { PROCESSORS = 4 };
static unsigned int processor; /* that of the running thread */

#define __read_mostly
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, to) (*(volatile __typeof__(x) *)&(x) = (to))
#define DEFINE_PER_CPU(type, name) __typeof__(type) name[PROCESSORS]
#define get_cpu_var(name) (name)[processor]
#define put_cpu_var(name) ((void)0)
#define num_possible_cpus() ((unsigned int)PROCESSORS)
#define min(a, b) ((a) < (b) ? (a) : (b))

/* As in jfsnvj.h. */
enum jfsnvj_kind { JFSNVJ_TBLOCKS, JFSNVJ_TLOCKS, JFSNVJ_KINDS };
bool jfsnvj_are_few(enum jfsnvj_kind kind);
unsigned int jfsnvj_take_from_list(enum jfsnvj_kind kind, u16 *numbers, unsigned int most);
void jfsnvj_return_to_list(enum jfsnvj_kind kind, const u16 *numbers, unsigned int count);

#define JFSNVJ_JOURNAL_H
#include "../kernel/jfs/free.c"

/* --- JFS's lists ------------------------------------------------------------------- */

enum { MOST_NUMBERS = 4096 };

static unsigned int all; /* of each kind; the numbers are 1 to all */
static struct {
	unsigned int count;
	u16 numbers[MOST_NUMBERS];
} list[JFSNVJ_KINDS];
/* Who has a number: 0: the list, 1: a processor or a thread. */
static bool taken[JFSNVJ_KINDS][MOST_NUMBERS + 1];

static void note_few(enum jfsnvj_kind kind)
{
	jfsnvj_set_few(kind, list[kind].count < all / 4);
}

static u16 take_one(enum jfsnvj_kind kind)
{
	u16 number = list[kind].numbers[--list[kind].count];

	expect(!taken[kind][number]);
	taken[kind][number] = true;
	note_few(kind);
	return number;
}

unsigned int jfsnvj_take_from_list(enum jfsnvj_kind kind, u16 *numbers, unsigned int most_taken)
{
	unsigned int count = 0;

	while (count < most_taken && !jfsnvj_are_few(kind))
		numbers[count++] = take_one(kind);
	return count;
}

void jfsnvj_return_to_list(enum jfsnvj_kind kind, const u16 *numbers, unsigned int count)
{
	while (count) {
		u16 number = numbers[--count];

		expect(taken[kind][number]);
		taken[kind][number] = false;
		list[kind].numbers[list[kind].count++] = number;
		note_few(kind);
	}
}

static void reset(unsigned int numbers)
{
	all = numbers;
	memset(kept, 0, sizeof(kept));
	memset(taken, 0, sizeof(taken));
	for (unsigned int kind = 0; kind < JFSNVJ_KINDS; kind++) {
		list[kind].count = 0;
		for (unsigned int n = 1; n <= all; n++)
			list[kind].numbers[list[kind].count++] = (u16)n;
		jfsnvj_keeps_free(kind, all);
		note_few(kind);
	}
}

static unsigned int kept_of(enum jfsnvj_kind kind)
{
	unsigned int sum = 0;

	for (unsigned int n = 0; n < PROCESSORS; n++)
		sum += kept[n][kind].count;
	return sum;
}

/* --- Tests ------------------------------------------------------------------------- */

static unsigned int random_state = 1;

static unsigned int random_below(unsigned int bound)
{
	random_state = random_state * 1103515245 + 12345;
	return (random_state >> 8) % bound;
}

/* As a transaction does it: 0 if the list is empty, too. */
static u16 take(enum jfsnvj_kind kind)
{
	u16 number = jfsnvj_take_kept(kind);

	if (number || !list[kind].count)
		return number;
	number = take_one(kind);
	jfsnvj_keep_more(kind);
	return number;
}

static void none_is_lost_or_taken_twice(unsigned int numbers)
{
	static u16 held[JFSNVJ_KINDS][MOST_NUMBERS];
	static bool is_held[JFSNVJ_KINDS][MOST_NUMBERS + 1];
	unsigned int count[JFSNVJ_KINDS] = {0}, wanted = 0;
	bool ran_out = false, was_plenty = false;

	reset(numbers);
	memset(is_held, 0, sizeof(is_held));
	for (unsigned int step = 0; step < 200000; step++) {
		enum jfsnvj_kind kind = random_below(JFSNVJ_KINDS);

		if (step % 1000 == 0)
			wanted = random_below(numbers + numbers / 4);
		processor = random_below(PROCESSORS);
		if (count[kind] < wanted) {
			u16 number = take(kind);

			if (!number) {
				ran_out = true;
				expect(list[kind].count == 0);
				expect(count[kind] + kept_of(kind) == all);
				/* At most an eighth is with processors that do not need it. */
				expect(kept_of(kind) <= all / 8);
				wanted = 0;
				continue;
			}
			expect(number <= all && !is_held[kind][number]);
			is_held[kind][number] = true;
			held[kind][count[kind]++] = number;
		} else if (count[kind]) {
			unsigned int at = random_below(count[kind]);
			u16 number = held[kind][at];
			bool few_before = jfsnvj_are_few(kind);
			unsigned int listed = list[kind].count;

			held[kind][at] = held[kind][--count[kind]];
			is_held[kind][number] = false;
			jfsnvj_free_number(kind, number);
			/* Who waits for one gets it. */
			expect(!few_before || list[kind].count > listed);
			was_plenty |= !few_before;
		}
		expect(list[kind].count + kept_of(kind) + count[kind] == all);
	}
	expect(ran_out && was_plenty);
}

/* Nobody asks for the list as long as a processor takes and frees a few in turn. */
static void few_steps_need_the_list(void)
{
	unsigned int listed;

	reset(MOST_NUMBERS);
	processor = 1;
	jfsnvj_free_number(JFSNVJ_TLOCKS, take(JFSNVJ_TLOCKS));
	listed = list[JFSNVJ_TLOCKS].count;
	for (unsigned int round = 0; round < 1000; round++) {
		u16 mine[8];

		for (unsigned int n = 0; n < 8; n++)
			mine[n] = take(JFSNVJ_TLOCKS);
		for (unsigned int n = 0; n < 8; n++)
			jfsnvj_free_number(JFSNVJ_TLOCKS, mine[n]);
		expect(list[JFSNVJ_TLOCKS].count == listed);
	}
}

int main(void)
{
	none_is_lost_or_taken_twice(MOST_NUMBERS);
	none_is_lost_or_taken_twice(255);
	none_is_lost_or_taken_twice(15); /* processors keep none */
	few_steps_need_the_list();
	return 0;
}
