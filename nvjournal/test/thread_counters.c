/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real threads, on real processors: counters in blocks of one's own, in blocks
 * shared under a lock, in lines of a block shared without one, in several blocks
 * at once, and money that goes from one account to another. Then the journal is
 * abandoned as by a crash, recovered, and compared with what each thread knew to
 * be committed. Also built with ThreadSanitizer.
 *
 *	thread_counters [SEED [OPERATIONS]]
 */
#include "lib/random.h"
#include "nvjournal_user.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 16u
#define SHARED 4u
#define ACCOUNTS 6u
#define GROUP 3u
#define MONEY 1000u

/* Where each kind of block is. */
enum {
	OWN_AT = 0,
	GROUP_AT = OWN_AT + MOST_THREADS,
	SHARED_AT = GROUP_AT + MOST_THREADS * GROUP,
	ACCOUNT_AT = SHARED_AT + SHARED,
	LINES_AT = ACCOUNT_AT + ACCOUNTS,
	BLOCKS
};

struct shape {
	unsigned threads, partitions, ring_lines;
	bool workers;
};

struct game;

struct player {
	struct game *game;
	unsigned number;
	struct random random;
	pthread_t thread;
	/* Logged, and known to be committed. */
	uint64_t own, own_kept, group, group_kept, line, line_kept;
	uint64_t shared_kept[SHARED];
};

struct game {
	struct shape shape;
	uint64_t operations;
	struct nvju_region *region;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	struct nvj *journal;
	pthread_mutex_t shared_lock[SHARED], account_lock[ACCOUNTS];
	struct player player[MOST_THREADS];
	_Alignas(64) uint8_t block[BLOCKS][NVJ_BLOCK_BYTES];
};

/*
 * Lines of one block by several threads: nvj_access then reads the block while
 * another changes his line of it, which ThreadSanitizer rightly calls a race,
 * and the engine does not mind.
 */
static bool without_lock = true;
static const char *persistence;
static struct nvj *volatile watched;
static char watched_text[160];

static void failed(const char *what, long long a, long long b)
{
	fprintf(stderr, "thread_counters: %s: %s (%lld, %lld)\n", watched_text, what, a, b);
	exit(1);
}

/* Nothing ends any more: says where the journal is, and ends the test. */
static void watchdog(int signal)
{
	struct nvj_statistics s;

	(void)signal;
	fprintf(stderr, "thread_counters: it hangs: %s\n", watched_text);
	if (watched != NULL) {
		nvj_statistics(watched, &s);
		fprintf(stderr,
			"running %llu, committed %llu, tail %llu, used %llu of %llu lines, %llu "
			"waits "
			"at start, %llu checkpoints\n",
			(unsigned long long)s.running_tid, (unsigned long long)s.committed_tid,
			(unsigned long long)s.tail_tid, (unsigned long long)s.used_lines,
			(unsigned long long)s.ring_lines, (unsigned long long)s.start_waits,
			(unsigned long long)s.checkpoints);
	}
	_exit(3);
}

static void begin(struct player *p, struct nvj_handle *handle, uint32_t credits)
{
	int r = nvj_start(p->game->journal, handle, credits);

	if (r < 0)
		failed("nvj_start", r, credits);
}

static void access_block(struct player *p, struct nvj_handle *handle, unsigned block)
{
	int r = nvj_access(handle, block, p->game->block[block]);

	if (r < 0)
		failed("nvj_access", r, block);
}

static void log_block(struct player *p, struct nvj_handle *handle, unsigned block, uint64_t mask)
{
	int r = nvj_log(handle, block, p->game->block[block], mask);

	if (r < 0)
		failed("nvj_log", r, block);
}

static uint64_t *word(struct player *p, unsigned block, unsigned line)
{
	return (uint64_t *)(void *)(p->game->block[block] + 64 * line);
}

/* The same count in several lines of a block that is nobody else's. */
static uint64_t count_own(struct player *p)
{
	struct nvj_handle handle;
	unsigned block = OWN_AT + p->number;

	begin(p, &handle, 1 + 8);
	access_block(p, &handle, block);
	p->own++;
	for (unsigned i = 0; i < 8; i++)
		*word(p, block, i * 8) = p->own;
	log_block(p, &handle, block, NVJ_COMPARE);
	return nvj_stop(&handle);
}

/* The same count in several blocks. */
static uint64_t count_group(struct player *p)
{
	struct nvj_handle handle;

	begin(p, &handle, 2 * GROUP);
	p->group++;
	for (unsigned i = 0; i < GROUP; i++) {
		unsigned block = GROUP_AT + p->number * GROUP + i;

		access_block(p, &handle, block);
		*word(p, block, p->group % 64) = p->group;
		*word(p, block, (p->group + 63) % 64) = 0;
		log_block(p, &handle, block,
			  random_once_in(&p->random, 2)
				  ? NVJ_COMPARE
				  : UINT64_C(1) << p->group % 64 | UINT64_C(1)
									   << (p->group + 63) % 64);
		if (handle.credits > 1000000)
			failed("the handle's credits", handle.credits, 0);
	}
	return nvj_stop(&handle);
}

/* A count that all share, under a lock. */
static uint64_t count_shared(struct player *p, unsigned n, uint64_t *value)
{
	struct nvj_handle handle;
	uint64_t tid;
	bool early = random_once_in(&p->random, 2);

	begin(p, &handle, 2);
	pthread_mutex_lock(&p->game->shared_lock[n]);
	access_block(p, &handle, SHARED_AT + n);
	*value = ++*word(p, SHARED_AT + n, 7);
	log_block(p, &handle, SHARED_AT + n, NVJ_COMPARE);
	if (early)
		pthread_mutex_unlock(&p->game->shared_lock[n]);
	tid = nvj_stop(&handle);
	if (!early)
		pthread_mutex_unlock(&p->game->shared_lock[n]);
	return tid;
}

/* Money from one account to another; what there is in all never changes. */
static uint64_t pay(struct player *p)
{
	struct nvj_handle handle;
	unsigned a = random_below(&p->random, ACCOUNTS), b = random_below(&p->random, ACCOUNTS);
	uint64_t amount = random_below(&p->random, 20), tid;

	if (a == b)
		b = (b + 1) % ACCOUNTS;
	if (a > b) {
		unsigned c = a;

		a = b;
		b = c;
	}
	begin(p, &handle, 4);
	/* The lock on one goes before the other is taken: handles overlap, transactions merge. */
	pthread_mutex_lock(&p->game->account_lock[a]);
	access_block(p, &handle, ACCOUNT_AT + a);
	*word(p, ACCOUNT_AT + a, 0) -= amount;
	log_block(p, &handle, ACCOUNT_AT + a, NVJ_COMPARE);
	pthread_mutex_unlock(&p->game->account_lock[a]);
	pthread_mutex_lock(&p->game->account_lock[b]);
	access_block(p, &handle, ACCOUNT_AT + b);
	*word(p, ACCOUNT_AT + b, 0) += amount;
	log_block(p, &handle, ACCOUNT_AT + b, NVJ_COMPARE);
	pthread_mutex_unlock(&p->game->account_lock[b]);
	tid = nvj_stop(&handle);
	return tid;
}

/* One's own line of a block that all write, without any lock. */
static uint64_t count_line(struct player *p)
{
	struct nvj_handle handle;

	begin(p, &handle, 2);
	access_block(p, &handle, LINES_AT);
	*word(p, LINES_AT, p->number) = ++p->line;
	log_block(p, &handle, LINES_AT, UINT64_C(1) << p->number);
	return nvj_stop(&handle);
}

static void *play(void *argument)
{
	struct player *p = argument;

	for (uint64_t i = 0; i < p->game->operations; i++) {
		uint64_t own = p->own, group = p->group, line = p->line, value = 0, tid;
		unsigned n = random_below(&p->random, SHARED);

		switch (random_below(&p->random, without_lock ? 5 : 4)) {
		case 0:
			tid = count_own(p);
			own = p->own;
			break;
		case 1:
			tid = count_group(p);
			group = p->group;
			break;
		case 2:
			tid = count_shared(p, n, &value);
			break;
		case 3:
			tid = pay(p);
			break;
		default:
			tid = count_line(p);
			line = p->line;
			break;
		}
		if (!random_once_in(&p->random, 3))
			continue;
		if (nvj_commit(p->game->journal, tid) < 0)
			failed("nvj_commit", (long long)tid, 0);
		/* All that this thread has stopped lies in this transaction or before it. */
		p->own_kept = own;
		p->group_kept = group;
		p->line_kept = line;
		if (value > p->shared_kept[n])
			p->shared_kept[n] = value;
		if (random_once_in(&p->random, 50) && nvj_checkpoint(p->game->journal) < 0)
			failed("nvj_checkpoint", (long long)tid, 0);
	}
	return NULL;
}

static const uint64_t *home(struct game *g, unsigned block, unsigned line)
{
	return (const uint64_t *)(const void *)((uint8_t *)nvju_disk_bytes(g->disk) +
						(size_t)block * NVJ_BLOCK_BYTES + 64 * line);
}

/* What recovery left, against what each thread knew. */
static void compare(struct game *g)
{
	uint64_t sum = 0;

	for (unsigned t = 0; t < g->shape.threads; t++) {
		struct player *p = &g->player[t];
		uint64_t is = *home(g, OWN_AT + t, 0), group = 0;

		if (is < p->own_kept || is > p->own)
			failed("a count of its own", (long long)is, (long long)p->own_kept);
		for (unsigned i = 0; i < 8; i++)
			if (*home(g, OWN_AT + t, i * 8) != is)
				failed("lines of a block differ", (long long)is, t);
		for (unsigned l = 0; l < 64; l++)
			if (*home(g, GROUP_AT + t * GROUP, l) > group)
				group = *home(g, GROUP_AT + t * GROUP, l);
		if (group < p->group_kept || group > p->group)
			failed("a count in several blocks", (long long)group,
			       (long long)p->group_kept);
		for (unsigned i = 1; i < GROUP; i++)
			if (memcmp(home(g, GROUP_AT + t * GROUP, 0),
				   home(g, GROUP_AT + t * GROUP + i, 0), NVJ_BLOCK_BYTES) != 0)
				failed("blocks of a handle differ", (long long)group, t);
		is = *home(g, LINES_AT, t);
		if (is < p->line_kept || is > p->line)
			failed("a line of its own", (long long)is, (long long)p->line_kept);
		for (unsigned n = 0; n < SHARED; n++)
			if (*home(g, SHARED_AT + n, 7) < p->shared_kept[n])
				failed("a shared count", (long long)*home(g, SHARED_AT + n, 7),
				       (long long)p->shared_kept[n]);
	}
	for (unsigned a = 0; a < ACCOUNTS; a++)
		sum += *home(g, ACCOUNT_AT + a, 0);
	if (sum != ACCOUNTS * MONEY)
		failed("the sum of all accounts", (long long)sum, ACCOUNTS * MONEY);
}

/* One life of the journal: open, play, abandon, recover, compare. */
static void one_life(struct game *g, uint64_t seed)
{
	struct nvj_options options = {.workers = g->shape.workers, .recover_with = nvju_run};
	const struct nvj_region *region = nvju_region(g->region);
	struct nvju_workers *workers = NULL;
	struct nvj_report report;
	int r;

	alarm(300);
	r = nvj_open(&g->journal, region, &g->platform.platform, &options, &report);
	if (r < 0)
		failed("nvj_open", r, report.findings);
	watched = g->journal;
	if (g->shape.workers) {
		r = nvju_workers_start(&workers, g->journal,
				       NVJU_CHECKPOINT_WORKERS | NVJU_COMMIT_WORKERS);
		if (r < 0)
			failed("nvju_workers_start", r, 0);
	}
	memcpy(g->block, nvju_disk_bytes(g->disk), sizeof(g->block));
	for (unsigned t = 0; t < g->shape.threads; t++) {
		struct player *p = &g->player[t];

		/* What the last life lost is not counted again. */
		p->game = g;
		p->number = t;
		p->random = random_from(seed * 64 + t);
		p->own = *word(p, OWN_AT + t, 0);
		p->line = *word(p, LINES_AT, t);
		p->group = 0;
		for (unsigned l = 0; l < 64; l++)
			if (*word(p, GROUP_AT + t * GROUP, l) > p->group)
				p->group = *word(p, GROUP_AT + t * GROUP, l);
		if (pthread_create(&p->thread, NULL, play, p) != 0)
			failed("pthread_create", t, 0);
	}
	for (unsigned t = 0; t < g->shape.threads; t++)
		pthread_join(g->player[t].thread, NULL);
	nvju_workers_stop(workers);
	watched = NULL;
	nvj_abandon(g->journal);
	r = nvj_recover_with(region, &g->platform.platform, nvju_run, &report);
	if (r < 0 || report.findings != 0)
		failed("nvj_recover", r, report.findings);
	compare(g);
	alarm(0);
}

static void one_game(struct shape shape, uint64_t seed, uint64_t operations)
{
	struct nvju_dram dram = {.persistence = persistence};
	struct game *g = aligned_alloc(64, (sizeof(*g) + 63) / 64 * 64);
	struct nvj_format_options format = {.partitions = shape.partitions,
					    .commits = 64,
					    .placement =
						    seed % 2 ? NVJ_PLACE_CPU : NVJ_PLACE_BLOCK};
	size_t bytes = NVJ_COMMITS_OFFSET + 64 * nvj_commit_lines(shape.partitions) * 64 +
		       (size_t)shape.partitions * shape.ring_lines * 64;

	if (g == NULL)
		failed("no memory", 0, 0);
	memset(g, 0, sizeof(*g));
	g->shape = shape;
	g->operations = operations;
	snprintf(watched_text, sizeof(watched_text),
		 "%u threads, P = %u, %u lines, %s workers, seed %llu", shape.threads,
		 shape.partitions, shape.ring_lines, shape.workers ? "with" : "without",
		 (unsigned long long)seed);
	if (nvju_region_dram(&g->region, (bytes + 4095) / 4096 * 4096, &dram) < 0 ||
	    nvju_disk_memory(&g->disk, BLOCKS, NULL) < 0)
		failed(nvju_error(), 0, 0);
	nvju_platform_init(&g->platform, g->disk);
	nvju_uuid(format.uuid);
	if (nvj_format(nvju_region(g->region), &format) < 0)
		failed("nvj_format", 0, 0);
	for (unsigned i = 0; i < SHARED; i++)
		pthread_mutex_init(&g->shared_lock[i], NULL);
	for (unsigned i = 0; i < ACCOUNTS; i++) {
		uint64_t money = MONEY;

		pthread_mutex_init(&g->account_lock[i], NULL);
		memcpy((uint8_t *)nvju_disk_bytes(g->disk) + (size_t)(ACCOUNT_AT + i) * 4096,
		       &money, 8);
	}
	for (unsigned life = 0; life < 2; life++)
		one_life(g, seed + life);
	nvju_disk_close(g->disk);
	nvju_region_close(g->region);
	free(g);
}

int main(int argc, char **argv)
{
	static const unsigned threads[] = {2, 3, 4, 8, 16};
	const char *variant = getenv("NVJ_VARIANT");
	bool slow = variant != NULL && (!strcmp(variant, "tsan") || !strcmp(variant, "asan"));
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t operations = argc > 2 ? strtoull(argv[2], NULL, 0) : slow ? 2000 : 20000;
	unsigned games = 0;

	signal(SIGALRM, watchdog);
	if (slow) {
		/* What is stored by instructions of its own is not seen by a sanitizer. */
		persistence = "none";
		without_lock = strcmp(variant, "tsan") != 0;
	}
	for (unsigned t = 0; t < sizeof(threads) / sizeof(threads[0]); t++)
		for (unsigned workers = 0; workers < 2; workers++)
			for (unsigned partitions = 1; partitions <= 8; partitions *= 8)
				for (unsigned ring = 1024; ring <= 8192; ring *= 8) {
					struct shape shape = {threads[t], partitions, ring,
							      workers != 0};

					one_game(shape, seed + games, operations / threads[t]);
					games++;
				}
	printf("thread_counters: %u games of %llu operations in 2 lives each: nothing lost\n",
	       games, (unsigned long long)operations);
	return 0;
}
