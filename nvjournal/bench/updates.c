/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one update of 256 bytes costs (an inode: 4 lines of a block), against the
 * floor: the same bytes copied to the same memory, flushed, with a fence behind.
 * And what two threads do, each with blocks of its own.
 */
#include "bench.h"
#include "../user/present.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 256u /* of each thread: their images stay in the cache */
#define INODE_LINES 4u
#define INODES (NVJ_BLOCK_LINES / INODE_LINES)
#define UPDATES 100000u
#define QUICK_UPDATES 20000u

#define BY_DEFAULT ~0u

enum kind { CHANGE, FLOOR_256, FLOOR_320, UPDATE, COMPARE, ONE_LOCK };

static const struct {
	const char *name;
	enum kind kind;
	unsigned partitions; /* BY_DEFAULT: as nvj format makes on this machine */
	enum nvj_placement placement;
} subjects[] = {
	{"change", CHANGE, 0, 0},
	{"floor-256", FLOOR_256, 0, 0},
	{"floor-320", FLOOR_320, 0, 0},
	{"nvjournal", UPDATE, 1, NVJ_PLACE_BLOCK},
	{"nvjournal", UPDATE, 8, NVJ_PLACE_BLOCK},
	{"nvjournal-cpu", UPDATE, 16, NVJ_PLACE_CPU},
	{"nvjournal-default", UPDATE, BY_DEFAULT, NVJ_PLACE_CPU},
	{"nvjournal-compare", COMPARE, 1, NVJ_PLACE_BLOCK},
	{"one-lock", ONE_LOCK, 1, 0},
};
#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))
#define OURS "nvjournal-cpu" /* the subject in the ratio to one lock */
#define LOCKED "one-lock"
#define MAX_UPDATE_THREADS 2u

struct state {
	const struct nvj_region *region;
	struct nvj *journal;
	enum kind kind;
	uint32_t updates;
	uint8_t *images[MAX_UPDATE_THREADS];
	pthread_mutex_t lock __attribute__((aligned(128)));
	uint64_t head __attribute__((aligned(128)));
};

/* Blocks one after the other, and inodes: neighbours are not in one line of code's cache. */
static uint8_t *inode_of(struct state *s, unsigned thread, uint32_t n, uint32_t *block,
			 unsigned *line)
{
	*block = n % BLOCKS;
	*line = n / BLOCKS % INODES * INODE_LINES;
	return s->images[thread] + (size_t)*block * NVJ_BLOCK_BYTES;
}

static void change(uint8_t *image, unsigned line, uint32_t n)
{
	for (unsigned k = 0; k < INODE_LINES; k++) {
		uint64_t value = ((uint64_t)n << 8) + k + 1;

		memcpy(image + (size_t)(line + k) * NVJ_LINE_BYTES, &value, sizeof(value));
	}
}

/* Each thread has a half of the region, as sequential as a ring. */
static int floor_thread(struct state *s, unsigned thread)
{
	const struct nvj_persistence *p = s->region->persistence;
	size_t half = s->region->size_bytes / 2 / 4096 * 4096, at = 0;
	uint8_t *to = (uint8_t *)s->region->base + thread * half;
	uint8_t header[NVJ_LINE_BYTES] __attribute__((aligned(64))) = {1};

	for (uint32_t n = 0; n < s->updates; n++) {
		uint32_t block;
		unsigned line;
		uint8_t *image = inode_of(s, thread, n, &block, &line);

		change(image, line, n);
		if (s->kind == CHANGE)
			continue;
		if (s->kind == FLOOR_320) {
			memcpy(header, &n, sizeof(n));
			p->write(p, to + at, header, sizeof(header));
			at += sizeof(header);
		}
		p->write(p, to + at, image + (size_t)line * NVJ_LINE_BYTES,
			 INODE_LINES * NVJ_LINE_BYTES);
		p->fence(p);
		at += INODE_LINES * NVJ_LINE_BYTES;
		if (at + 5 * NVJ_LINE_BYTES > half)
			at = 0;
	}
	return 0;
}

static int update_thread(struct state *s, unsigned thread)
{
	for (uint32_t n = 0; n < s->updates; n++) {
		struct nvj_handle handle;
		uint32_t block;
		unsigned line;
		uint8_t *image = inode_of(s, thread, n, &block, &line);
		uint64_t number = block + thread * THREAD_STRIDE;

		if (nvj_start(s->journal, &handle, 1 + INODE_LINES) ||
		    nvj_access(&handle, number, image))
			return -1;
		change(image, line, n);
		if (nvj_log(&handle, number, image,
			    s->kind == COMPARE ? NVJ_COMPARE : UINT64_C(15) << line) < 0)
			return -1;
		nvj_stop(&handle);
	}
	return 0;
}

/* Paper 3's baseline again, as in engine_one_lock.c, with an update instead of a stream. */
static int one_lock_thread(struct state *s, unsigned thread)
{
	const struct nvj_persistence *p = s->region->persistence;
	uint64_t header[8] __attribute__((aligned(64))) = {0};

	for (uint32_t n = 0; n < s->updates; n++) {
		uint32_t block;
		unsigned line;
		uint8_t *image = inode_of(s, thread, n, &block, &line), *to;

		change(image, line, n);
		header[0] = block;
		pthread_mutex_lock(&s->lock);
		to = (uint8_t *)s->region->base + s->head;
		s->head += (1 + INODE_LINES) * NVJ_LINE_BYTES;
		p->write(p, to, header, sizeof(header));
		p->write(p, to + NVJ_LINE_BYTES, image + (size_t)line * NVJ_LINE_BYTES,
			 INODE_LINES * NVJ_LINE_BYTES);
		p->fence(p);
		p->store64(p, (uint64_t *)(to + 56), 1);
		pthread_mutex_unlock(&s->lock);
	}
	return 0;
}

static int any_thread(void *argument, unsigned thread)
{
	struct state *s = argument;

	switch (s->kind) {
	case CHANGE:
	case FLOOR_256:
	case FLOOR_320:
		return floor_thread(s, thread);
	case ONE_LOCK:
		return one_lock_thread(s, thread);
	default:
		return update_thread(s, thread);
	}
}

static unsigned partitions_of(const struct bench *b, unsigned subject)
{
	unsigned partitions = subjects[subject].partitions;

	return partitions == BY_DEFAULT
		       ? nvj_usual_partitions(b->region->size_bytes, nvju_count_processors())
		       : partitions;
}

/* Seconds for one update of one thread. */
static double measure(struct bench *b, struct state *s, unsigned subject, unsigned threads)
{
	struct journal_options options = {
		.partitions = partitions_of(b, subject),
		.placement = subjects[subject].placement,
		.checkpoint_percent = 90,
		.disk_blocks = MAX_UPDATE_THREADS * THREAD_STRIDE,
	};
	struct test_journal t = {0};
	double seconds;

	s->kind = subjects[subject].kind;
	s->head = 0;
	if (s->kind == UPDATE || s->kind == COMPARE) {
		uint32_t updates = s->updates;

		journal_begin(b, &t, &options);
		s->journal = t.journal;
		/* The blocks' entries are made before the time is taken. */
		s->updates = BLOCKS;
		run_threads(threads, any_thread, s);
		s->updates = updates;
	}
	seconds = run_threads(threads, any_thread, s);
	journal_end(&t);
	return seconds / s->updates;
}

/* A round of each subject: nanoseconds of one thread, and of each of two. */
static void measure_round(struct bench *b, struct state *s, unsigned round, struct rounds *rounds)
{
	for (unsigned n = 0; n < SUBJECTS; n++) {
		struct rounds *of = &rounds[n];
		double one = 1e9 * measure(b, s, n, 1), two;
		struct way way = {.before_ns = distance_ns(b, MAX_UPDATE_THREADS)};

		two = 1e9 * measure(b, s, n, MAX_UPDATE_THREADS);
		way.after_ns = distance_ns(b, MAX_UPDATE_THREADS);
		if (!round || of->count == MAX_ROUNDS)
			continue; /* the first one warms up */
		of->number[of->count] = round;
		of->value[of->count] = one;
		of->other[of->count] = two;
		of->way[of->count++] = way;
	}
}

static unsigned subject_of(const char *name)
{
	unsigned n = 0;

	while (strcmp(subjects[n].name, name))
		n++;
	return n;
}

/* A state in which there are too few pairs with one lock; NEITHER: none that may come. */
static enum nearness lacking(const struct bench *b, const struct rounds *rounds)
{
	for (enum nearness state = NEAR; state < NEITHER; state++)
		if (may_wait_for(b, state) &&
		    pairs_of(b, &rounds[subject_of(OURS)], &rounds[subject_of(LOCKED)], state) <
			    WANTED_PAIRS)
			return state;
	return NEITHER;
}

void measure_updates(struct bench *b)
{
	static struct rounds rounds[SUBJECTS];
	unsigned count = short_rounds(b);
	struct state *s = must_allocate(sizeof(*s));

	s->region = b->region;
	s->updates = b->quick ? QUICK_UPDATES : UPDATES;
	baseline_lock_init(&s->lock);
	for (unsigned n = 0; n < MAX_UPDATE_THREADS; n++)
		s->images[n] = must_allocate((size_t)BLOCKS * NVJ_BLOCK_BYTES);
	for (unsigned round = 0; round <= count; round++)
		measure_round(b, s, round, rounds);
	for (unsigned extra = 1; extra <= FURTHER_ROUNDS * b->rounds; extra++) {
		enum nearness state = lacking(b, rounds);

		if (state == NEITHER)
			break;
		if (!wait_for(b, state, MAX_UPDATE_THREADS))
			continue;
		fprintf(stderr, "bench: updates, further round %u\n", extra);
		measure_round(b, s, count + extra, rounds);
	}
	json_open(b, "floor", '[');
	for (unsigned n = 0; n < SUBJECTS; n++) {
		json_open(b, NULL, '{');
		json_text(b, "engine", subjects[n].name);
		json_number(b, "partitions", partitions_of(b, n));
		json_rounds(b, &rounds[n], "ns", "ns_each_of_two_threads");
		json_close(b, '}');
	}
	json_close(b, ']');
	for (unsigned n = 0; n < MAX_UPDATE_THREADS; n++)
		free(s->images[n]);
	free(s);
}
