/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery with a thread for each partition comes to the same as in turn, with
 * the same report; and if records of several partitions are damaged, all of these
 * are named, in the order of the partitions, and nothing is written.
 */
#include <pthread.h>
#include "rest.h"

#define PARTITIONS 8u

struct call {
	void (*work)(void *argument, unsigned n);
	void *argument;
	unsigned n;
};

static void *call(void *argument)
{
	struct call *c = argument;

	c->work(c->argument, c->n);
	return NULL;
}

static unsigned runs;

static void in_threads(void *context, unsigned count, void (*work)(void *argument, unsigned n),
		       void *argument)
{
	pthread_t thread[PARTITIONS];
	struct call calls[PARTITIONS];

	expect(context && count == PARTITIONS);
	runs++;
	for (unsigned n = 0; n < count; n++) {
		calls[n] = (struct call){work, argument, n};
		expect(pthread_create(&thread[n], NULL, call, &calls[n]) == 0);
	}
	for (unsigned n = 0; n < count; n++)
		expect(pthread_join(thread[n], NULL) == 0);
}

int main(void)
{
	struct rest *t = rest_formatted(PARTITIONS, 1024);
	struct nvj_report a, b;
	uint64_t second[PARTITIONS];
	uint8_t *disk = malloc(sizeof(t->disk));

	expect(disk);
	for (unsigned n = 0; n < 700; n++) {
		/* 35 blocks in each partition, more than a queue. */
		rest_log(t, 1 + n / 100, n % 13 ? NVJ_UPDATE : NVJ_REVOKE, n % 250,
			 n % 13 ? UINT64_C(3) << n % 60 : 0, 0, (uint8_t)(n + 1));
		if (n < PARTITIONS)
			second[n % 250 % PARTITIONS] = t->head[n % 250 % PARTITIONS];
		if (n % 100 == 99)
			rest_seal(t, 1 + n / 100, NVJ_COMMIT, NULL, NULL);
	}
	rest_keep(t);
	expect(nvj_recover(&t->region, &t->platform, &a) == 0);
	expect(a.records > 500 && a.revoked > 0 && a.blocks > 200 && a.transactions == 7);
	memcpy(disk, t->disk, sizeof(t->disk));
	rest_back(t);
	expect(nvj_recover_with(&t->region, &t->platform, in_threads, &b) == 0);
	expect(runs == 2 && !memcmp(&a, &b, sizeof(a)));
	expect(!memcmp(disk, t->disk, sizeof(t->disk)));

	rest_back(t);
	for (unsigned n = 1; n < PARTITIONS; n += 3)
		((uint8_t *)nvj_line_at(&t->g, n, second[n]))[5] ^= 0x10;
	rest_keep(t);
	expect(nvj_recover_with(&t->region, &t->platform, in_threads, &b) == NVJ_EUCLEAN);
	expect(b.findings == 3 && runs == 3 && rest_untouched(t));
	for (unsigned i = 0; i < 3; i++)
		expect(b.finding[i].kind == NVJ_FOUND_RECORD &&
		       b.finding[i].partition == 1 + 3 * i &&
		       b.finding[i].position == second[1 + 3 * i] &&
		       b.finding[i].offset ==
			       nvj_offset_of_line(&t->g, 1 + 3 * i, second[1 + 3 * i]));
	/* More than are kept are counted all the same: 15 slots, and a copy each. */
	for (uint64_t tid = 1; tid <= 15; tid++)
		nvj_commit_at(&t->g, tid)->seal ^= 1;
	t->memory[NVJ_SUPER_OFFSET + 20] ^= 1;
	*nvj_tail_at(&t->g, 1) ^= 1;
	expect(nvj_check(&t->region, &t->platform, &b) == NVJ_EUCLEAN);
	expect(b.findings == 17 && b.finding[NVJ_MAX_FINDINGS - 1].position == 14);
	free(disk);
	rest_free(t);
	return 0;
}
