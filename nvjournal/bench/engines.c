/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same stream of updates through each engine, at 1 to 16 threads. Engines
 * alternate within each round, and each round begins with another one; each begins
 * a round with a new, empty journal.
 *
 * Thread n of T takes the operations n, n + T, n + 2T... of the stream, again and
 * again, until its share of the round's operations is done or the time is over.
 * Before the time is taken, images of blocks are made, and each thread does half of
 * its share.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "count.h"
#include "step.h"

/* With half as many before them they fit into the commit ring, so that nothing goes home. */
#define ROUND_OPERATIONS 40000u
#define ROUND_SECONDS 0.25
/* The clock is read once for so many operations. */
#define CLOCK_EACH 16u
#define MAX_ENGINES 16u
#define OTHER_ROUNDS 3u      /* of engines that have no part in a verdict */
#define OURS "nvjournal-cpu" /* the engine in all ratios: nvjournal, by processor */
#define LINES_REGION_BYTES (UINT64_C(512) << 20)

static const unsigned thread_counts[] = {1, 2, 4, 8, 16};
#define THREAD_COUNTS (sizeof(thread_counts) / sizeof(thread_counts[0]))

struct replay {
	struct engine *engine;
	const struct stream *stream;
	struct worker workers[MAX_THREADS];
	unsigned threads, commit_each;
	uint64_t operations[MAX_THREADS], updates[MAX_THREADS]; /* that were done */
	uint64_t share;                                         /* operations of each thread */
	uint64_t until_ns;
};

struct result {
	double updates_per_second, operations_per_second;
	double bytes, flushes, fences, syncs; /* each update */
};

static int replay_thread(void *argument, unsigned number)
{
	struct replay *r = argument;
	struct worker *w = &r->workers[number];
	const struct operation *all = r->stream->operations + r->stream->initial;
	uint64_t at = number % r->stream->count, updates = 0, n = 0;
	bool each = r->commit_each == 1;

	while (n < r->share) {
		const struct operation *o = &all[at];

		if (r->engine->apply(r->engine, w, o))
			return -1;
		updates += o->count;
		n++;
		at += r->threads;
		if (at >= r->stream->count)
			at -= r->stream->count;
		if ((each || n % r->commit_each == 0) && r->engine->commit(r->engine, w))
			return -1;
		if (n % CLOCK_EACH == 0 && now_ns() > r->until_ns)
			break;
	}
	if (!each && n % r->commit_each && r->engine->commit(r->engine, w))
		return -1;
	r->operations[number] = n;
	r->updates[number] = updates;
	return 0;
}

/*
 * Operations that are run one instruction at a time, after as many that warm up; or those
 * of one commit, if it has more.
 */
#define STEP_OPERATIONS 40u

/* Gives each thread the blocks as they were before the stream. */
static void set_up_workers(struct replay *r, uint8_t *images)
{
	size_t bytes = (size_t)r->stream->blocks * NVJ_BLOCK_BYTES;

	for (unsigned t = 0; t < r->threads; t++) {
		struct worker *w = &r->workers[t];

		*w = (struct worker){.engine = r->engine,
				     .number = t,
				     .first_block = t * THREAD_STRIDE,
				     .images = images + t * bytes};
		memset(w->images, 0, bytes);
		if (r->engine->without_zeros)
			memset(w->images, 0x5a, bytes);
		for (size_t n = 0; n < r->stream->initial; n++)
			for (uint32_t k = 0; k < r->stream->operations[n].count; k++)
				worker_change(w, &r->stream->operations[n].updates[k]);
	}
}

/* Each thread replays as many operations, or as many as the time allows; seconds taken. */
static double replay_share(const struct bench *b, struct replay *r, uint64_t share)
{
	r->share = share;
	r->until_ns = now_ns() + (uint64_t)((b->quick ? 0.2 : 1.0) * ROUND_SECONDS * 1e9);
	return run_threads(r->threads, replay_thread, r);
}

static struct result replay(struct bench *b, struct engine *e, const struct stream *s,
			    unsigned threads, unsigned commit_each, uint8_t *images, bool count)
{
	static struct replay r;
	struct bench_counts before = {0}, after = {0};
	struct counted counted;
	struct nvj_region region = *b->region;
	struct bench_setup setup = {
		.region = &region, .stream = s, .threads = threads, .directory = b->directory};
	uint64_t share = (b->quick ? ROUND_OPERATIONS / 8 : ROUND_OPERATIONS) / threads;
	struct result result = {0};
	double seconds, operations = 0, updates = 0;

	/*
	 * Lines need less; what is larger takes time to set up. By processor, a few
	 * threads use a few of the rings.
	 */
	if (!e->without_zeros && e->placement != NVJ_PLACE_CPU &&
	    region.size_bytes > LINES_REGION_BYTES)
		region.size_bytes = LINES_REGION_BYTES;
	counted_init(&counted, b->region->persistence);
	if (count)
		region.persistence = &counted.table;
	memset(&r, 0, sizeof(r));
	r.engine = e;
	r.stream = s;
	r.threads = threads;
	r.commit_each = commit_each;
	set_up_workers(&r, images);
	if (e->open(e, &setup))
		exit(2);
	/*
	 * Not timed: the first touch of each block, and of the engine's memory, is more
	 * of a short measurement the more threads there are.
	 */
	(void)replay_share(b, &r, (share + 1) / 2);
	counted.bytes = counted.flushes = counted.fences = 0;
	if (e->counts)
		e->counts(e, &before);
	seconds = replay_share(b, &r, share);
	if (e->counts)
		e->counts(e, &after);
	for (unsigned t = 0; t < threads; t++) {
		operations += (double)r.operations[t];
		updates += (double)r.updates[t];
	}
	result.operations_per_second = operations / seconds;
	result.updates_per_second = updates / seconds;
	result.bytes = e->ours ? (double)counted.bytes / updates
			       : (double)(after.bytes - before.bytes) / updates;
	result.flushes = (double)counted.flushes / updates;
	result.fences = (double)counted.fences / updates;
	result.syncs = (double)(after.syncs - before.syncs) / updates;
	e->close(e);
	return result;
}

struct stepping {
	struct replay *replay;
	const struct bench_setup *setup;
	uint64_t at;
	unsigned operations; /* a multiple of those of a commit */
};

static int step_operations(void *argument)
{
	struct stepping *s = argument;
	struct replay *r = s->replay;

	for (unsigned n = 0; n < s->operations; n++) {
		const struct operation *o =
			&r->stream->operations[r->stream->initial + s->at % r->stream->count];

		if (r->engine->apply(r->engine, &r->workers[0], o))
			return -1;
		if (++s->at % r->commit_each == 0 && r->engine->commit(r->engine, &r->workers[0]))
			return -1;
	}
	return 0;
}

static int step_begin(void *argument)
{
	struct stepping *s = argument;

	return s->replay->engine->open(s->replay->engine, s->setup) || step_operations(argument);
}

/*
 * What a library writes that brings its own instructions: counted by running it one
 * instruction at a time. False: it cannot be.
 */
static bool count_steps(struct bench *b, struct engine *e, const struct stream *s,
			unsigned commit_each, uint8_t *images, struct result *result)
{
	static struct replay r;
	struct bench_setup setup = {
		.region = b->region, .stream = s, .threads = 1, .directory = b->directory};
	unsigned operations = (STEP_OPERATIONS + commit_each - 1) / commit_each * commit_each;
	struct stepping stepping = {.replay = &r, .setup = &setup, .operations = operations};
	struct stepped c;
	double updates = 0;

	r = (struct replay){.engine = e, .stream = s, .threads = 1, .commit_each = commit_each};
	set_up_workers(&r, images);
	fflush(NULL);
	if (!step_through(step_begin, step_operations, &stepping, &c))
		return false;
	for (unsigned n = operations; n < 2 * operations; n++)
		updates += s->operations[s->initial + n % s->count].count;
	result->bytes = (double)(c.flushes * NVJ_LINE_BYTES + c.nt_bytes) / updates;
	result->flushes = ((double)c.flushes + (double)c.nt_bytes / NVJ_LINE_BYTES) / updates;
	result->fences = (double)c.fences / updates;
	return true;
}

static void print_row(struct bench *b, const struct engine *e, const struct stream *s,
		      unsigned threads, unsigned commit_each, const struct rounds *rounds,
		      const struct result *counts, bool stepped)
{
	json_open(b, NULL, '{');
	json_text(b, "stream", s->name);
	json_text(b, "engine", e->name);
	json_number(b, "partitions", e->partitions);
	json_number(b, "threads", threads);
	json_number(b, "commit_every_operations", e->committed ? 1 : commit_each);
	json_rounds(b, rounds, "updates_per_second", "operations_per_second");
	if (e->ours || stepped || counts->syncs > 0)
		json_number(b, "bytes_per_update", counts->bytes);
	if (e->ours || stepped) {
		json_number(b, "flushes_per_update", counts->flushes);
		json_number(b, "fences_per_update", counts->fences);
	}
	if (counts->syncs > 0)
		json_number(b, "syncs_per_update", counts->syncs);
	json_close(b, '}');
}

/* The number of the engine in all ratios. */
static unsigned ours(void)
{
	unsigned n = 0;

	while (strcmp(engines[n].name, OURS))
		n++;
	return n;
}

static bool wanted(const struct bench *b, unsigned n)
{
	return !b->engine || !strcmp(b->engine, engines[n].name);
}

/* What the rounds of a stream have in common. */
struct measuring {
	struct bench *bench;
	const struct stream *stream;
	unsigned commit_each;
	uint8_t *images;
};

/* One round of an engine; round 0 warms up. */
static void measure_round(struct measuring *m, unsigned n, unsigned threads, unsigned round,
			  struct rounds *of)
{
	struct bench *b = m->bench;
	struct way way = {.before_ns = distance_ns(b, threads)};
	struct result r =
		replay(b, &engines[n], m->stream, threads, m->commit_each, m->images, false);

	way.after_ns = distance_ns(b, threads);
	if (!round || of->count == MAX_ROUNDS)
		return;
	of->number[of->count] = round;
	of->value[of->count] = r.updates_per_second;
	of->other[of->count] = r.operations_per_second;
	of->way[of->count++] = way;
}

/*
 * The number of the engine that is the nth in a round. Each round begins with another
 * one.
 */
static unsigned in_turn(unsigned n, unsigned round)
{
	unsigned count = 0;

	while (engines[count].name)
		count++;
	return (n + round) % count;
}

/* A state in which an engine has too few pairs with nvjournal; NEITHER: none that may come. */
static enum nearness lacking(const struct bench *b, const struct rounds *rounds)
{
	if (!wanted(b, ours()))
		return NEITHER;
	for (enum nearness state = NEAR; state < NEITHER; state++) {
		if (!may_wait_for(b, state))
			continue;
		for (unsigned n = 0; engines[n].name; n++) {
			if (engines[n].compared && wanted(b, n) &&
			    pairs_of(b, &rounds[ours()], &rounds[n], state) < WANTED_PAIRS)
				return state;
		}
	}
	return NEITHER;
}

/*
 * Rounds of the engines that are compared, in the state of the processors that was
 * seen too rarely, as long as there is hope.
 */
static void measure_further(struct measuring *m, unsigned threads, struct rounds *rounds)
{
	struct bench *b = m->bench;

	for (unsigned extra = 1; extra <= FURTHER_ROUNDS * b->rounds; extra++) {
		enum nearness state = lacking(b, rounds);

		if (state == NEITHER)
			return;
		if (!wait_for(b, state, threads))
			continue; /* for the other one, perhaps */
		fprintf(stderr, "bench: %s, further round %u, %u threads\n", m->stream->name, extra,
			threads);
		for (unsigned k = 0; engines[k].name; k++) {
			unsigned n = in_turn(k, b->rounds + extra);

			if (engines[n].compared && wanted(b, n))
				measure_round(m, n, threads, b->rounds + extra, &rounds[n]);
		}
	}
}

static void measure_stream(struct bench *b, const struct stream *s, unsigned commit_each)
{
	static struct rounds rounds[THREAD_COUNTS][MAX_ENGINES];
	unsigned most = thread_counts[THREAD_COUNTS - 1];
	struct measuring m = {
		.bench = b,
		.stream = s,
		.commit_each = commit_each,
		.images = must_allocate((size_t)s->blocks * NVJ_BLOCK_BYTES * most),
	};

	memset(rounds, 0, sizeof(rounds));
	for (unsigned round = 0; round <= b->rounds; round++) {
		fprintf(stderr, "bench: %s, round %u of %u\n", s->name, round, b->rounds);
		for (unsigned t = 0; t < THREAD_COUNTS; t++)
			for (unsigned k = 0; engines[k].name; k++) {
				unsigned n = in_turn(k, round);

				if (wanted(b, n) && (engines[n].compared || round <= OTHER_ROUNDS))
					measure_round(&m, n, thread_counts[t], round,
						      &rounds[t][n]);
			}
	}
	for (unsigned t = 0; t < THREAD_COUNTS; t++)
		if (thread_counts[t] > 1)
			measure_further(&m, thread_counts[t], rounds[t]);
	for (unsigned n = 0; engines[n].name; n++) {
		struct result r = {0};
		bool stepped = false;

		if (!wanted(b, n))
			continue;
		/* What it writes for an operation does not depend on other threads. */
		if (engines[n].stepped) {
			fprintf(stderr, "bench: %s, %s, one instruction at a time\n", s->name,
				engines[n].name);
			stepped = count_steps(b, &engines[n], s, commit_each, m.images, &r);
		}
		for (unsigned t = 0; t < THREAD_COUNTS; t++) {
			if (!engines[n].stepped)
				r = replay(b, &engines[n], s, thread_counts[t], commit_each,
					   m.images, true);
			print_row(b, &engines[n], s, thread_counts[t], commit_each, &rounds[t][n],
				  &r, stepped);
		}
	}
	free(m.images);
}

/* A mail server syncs each operation. */
static unsigned commit_each_of(const struct stream *s)
{
	return strcmp(s->name, "varmail") ? 100 : 1;
}

double updates_per_second(struct bench *b, struct engine *e, const struct stream *s,
			  unsigned threads, uint8_t *images)
{
	return replay(b, e, s, threads, commit_each_of(s), images, false).updates_per_second;
}

void measure_streams(struct bench *b)
{
	json_open(b, "streams", '[');
	for (unsigned n = 0; n < b->stream_count; n++) {
		json_open(b, NULL, '{');
		json_text(b, "stream", b->streams[n].name);
		json_number(b, "operations", (double)b->streams[n].count);
		json_number(b, "updates", (double)b->streams[n].update_count);
		json_number(b, "lines", (double)b->streams[n].line_count);
		json_number(b, "blocks", b->streams[n].blocks);
		json_close(b, '}');
	}
	json_close(b, ']');
	json_open(b, "rows", '[');
	for (unsigned n = 0; n < b->stream_count; n++)
		measure_stream(b, &b->streams[n], commit_each_of(&b->streams[n]));
	json_close(b, ']');
}
