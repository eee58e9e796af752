/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the cache lines that move between processors, for each update and each
 * commit, in a simulation of 1 to 64 processors, and prints JSON:
 *
 *	transfers --stream varmail=FILE --stream create=FILE [--operations N]
 *	          [--processors N,N...] [--engine NAME] [--drain-ns N]
 *	          [--near-ns N] [--apart-ns N] [--one-thread STREAM:ENGINE:P=NS]
 *	          [--again] [--handle-ns N [--between-ns N] [--merge] [--alone]]
 *
 * The code is the core's, and the benchmark's, compiled so that it reports each
 * access to memory. Each thread has a processor and blocks of its own, as in the
 * benchmark. Counts do not depend on the machine. The rates are a model: accesses
 * take the time that makes one processor as fast as --one-thread says, and each
 * transfer takes --near-ns or --apart-ns. With --again, what is counted is the same
 * operations as before, without a commit: so no block is new, and all that moves is
 * shared by handles of different processors.
 *
 * With --handle-ns the caller is a file system (callers.c) with so much work in each
 * handle, and every second operation of varmail ends with a commit, as in ext4's load.
 * With --alone its platform says that each thread is alone on its processor, as that of
 * the kernel modules may.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../engine.h"
#include "cache.h"
#include "callers.h"
#include "processors.h"
#include "transfers.h"

#define MOST_STREAMS 4u
#define MOST_GIVEN 32u
#define REGION_BYTES (UINT64_C(256) << 20)

#define NVJOURNAL                                                                                  \
	.open = nvjournal_open, .apply = nvjournal_apply, .commit = nvjournal_commit,              \
	.close = nvjournal_close
#define ONE_LOCK                                                                                   \
	.open = one_lock_open, .apply = one_lock_apply, .commit = one_lock_commit,                 \
	.close = one_lock_close

#define COMMIT_WORKER "nvjournal-commit-worker"

/* As in the benchmark's list, if nothing else is said. */
static struct engine subjects[] = {
	{.name = "nvjournal", .partitions = 1, NVJOURNAL},
	{.name = "nvjournal", .partitions = 8, .placement = NVJ_PLACE_BLOCK, NVJOURNAL},
	{.name = "nvjournal-cpu", .partitions = 16, .placement = NVJ_PLACE_CPU, NVJOURNAL},
	/* A ring for each of 64 processors. It is not in the benchmark. */
	{.name = "nvjournal-cpu", .partitions = 64, .placement = NVJ_PLACE_CPU, NVJOURNAL},
	{.name = "nvjournal-one-lock", .partitions = 1, .option = 1, NVJOURNAL},
	/* With paper 4's commit worker, on a processor of its own. */
	{.name = COMMIT_WORKER, .partitions = 1, NVJOURNAL},
	{.name = "one-lock", .partitions = 1, ONE_LOCK},
	{.name = "one-lock-one-fence", .partitions = 1, .option = 1, ONE_LOCK},
};
/* The time of an access of an engine that was not measured. */
#define UNKNOWN_PS 300
#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

/* The measured time of one operation of one thread. */
struct given {
	char name[64]; /* STREAM:ENGINE:P */
	double ns;
};

struct options {
	struct stream streams[MOST_STREAMS];
	unsigned stream_count;
	unsigned processors[PROCESSORS], processor_count;
	const char *engine;
	unsigned operations; /* of each processor */
	bool again;
	double near_ns, apart_ns, drain_ns;
	struct callers callers;
	struct given given[MOST_GIVEN];
	unsigned given_count;
};

static struct nvj_region region;

/* One simulation. */
struct play {
	struct engine *engine;
	const struct stream *stream;
	struct worker workers[PROCESSORS];
	unsigned processors, commit_each, operations;
	bool callers;
	uint64_t at[PROCESSORS], updates[PROCESSORS], commits[PROCESSORS];
	unsigned ended;
};

struct result {
	uint64_t operations, updates, commits, ps;
	uint64_t transactions, merged, start_waits; /* with callers */
	struct counts counts;
};

static int play_processor(void *argument, unsigned number)
{
	struct play *p = argument;
	/* The first member of the engine's state. */
	struct nvj *journal = *(struct nvj **)p->engine->state;
	struct worker *w = &p->workers[number];
	const struct stream *s = p->stream;

	if (number == p->processors) {
		nvj_commit_worker(journal, 0);
		return 0;
	}
	p->updates[number] = p->commits[number] = 0;
	for (unsigned n = 1; n <= p->operations; n++) {
		const struct operation *o = &s->operations[s->initial + p->at[number]];

		if (p->callers ? callers_apply(journal, w, o) : p->engine->apply(p->engine, w, o))
			return -1;
		p->updates[number] += o->count;
		p->at[number] = (p->at[number] + p->processors) % s->count;
		if (!p->commit_each || n % p->commit_each)
			continue;
		if (p->engine->commit(p->engine, w))
			return -1;
		p->commits[number]++;
	}
	if (++p->ended == p->processors && !strcmp(p->engine->name, COMMIT_WORKER))
		nvj_stop_workers(journal);
	return 0;
}

static struct nvj_statistics statistics_of(const struct engine *e)
{
	struct nvj_statistics s;

	nvj_statistics(*(struct nvj **)e->state, &s);
	return s;
}

static struct result play(struct engine *e, const struct stream *s, unsigned processors,
			  unsigned operations, bool again, const struct callers *callers,
			  const struct costs *costs)
{
	static struct play p;
	static uint8_t *images;
	static size_t have;
	size_t bytes = (size_t)s->blocks * NVJ_BLOCK_BYTES;
	struct bench_setup setup = {.region = &region, .stream = s, .threads = processors};
	unsigned workers = !strcmp(e->name, COMMIT_WORKER);
	struct nvj_statistics before = {0};
	struct result r = {0};

	p = (struct play){.engine = e, .stream = s, .processors = processors};
	p.callers = callers->handle_ps > 0;
	callers_set(callers);
	p.commit_each = strcmp(s->name, "varmail") ? 100 : p.callers ? 2 : 1;
	p.operations = (operations + p.commit_each - 1) / p.commit_each * p.commit_each;
	if (have < bytes * processors) {
		free(images);
		have = bytes * processors;
		images = aligned_alloc(NVJ_BLOCK_BYTES, have);
		if (!images) {
			fprintf(stderr, "transfers: no memory for images\n");
			exit(2);
		}
	}
	for (unsigned n = 0; n < processors; n++) {
		struct worker *w = &p.workers[n];

		*w = (struct worker){.engine = e,
				     .number = n,
				     .first_block = n * THREAD_STRIDE,
				     .images = images + n * bytes};
		memset(w->images, 0, bytes);
		for (size_t k = 0; k < s->initial; k++)
			for (uint32_t u = 0; u < s->operations[k].count; u++)
				worker_change(w, &s->operations[k].updates[u]);
		p.at[n] = n % s->count;
	}
	cache_clear();
	processors_set(costs);
	if (e->open(e, &setup))
		exit(2);
	/* Not counted: the first access to each line. */
	(void)processors_run(processors, play_processor, &p);
	processors_count_again();
	p.ended = 0;
	for (unsigned n = 0; again && n < processors; n++) {
		p.at[n] = n % s->count;
		p.commit_each = 0;
	}
	if (p.callers)
		before = statistics_of(e);
	r.ps = processors_run(processors + workers, play_processor, &p);
	if (p.callers) {
		struct nvj_statistics after = statistics_of(e);

		r.transactions = after.transactions - before.transactions;
		r.merged = after.merged - before.merged;
		r.start_waits = after.start_waits - before.start_waits;
	}
	r.counts = processors_counts();
	for (unsigned n = 0; n < processors; n++) {
		r.operations += p.operations;
		r.updates += p.updates[n];
		r.commits += p.commits[n];
	}
	return r;
}

static double per(uint64_t count, uint64_t of)
{
	return of ? (double)count / (double)of : 0;
}

/*
 * The time of an access, so that one processor takes the measured time. Without that of
 * this engine it is `otherwise`.
 */
static uint64_t access_ps(const struct options *o, struct engine *e, const struct stream *s,
			  uint64_t otherwise)
{
	struct costs costs = {.access_ps = 100, .drain_ps = (uint64_t)(1000 * o->drain_ns)};
	double ns[2];
	char name[64];

	/* With a worker it is the same code. */
	snprintf(name, sizeof(name), "%s:%s:%u", s->name,
		 strcmp(e->name, COMMIT_WORKER) ? e->name : subjects[0].name, e->partitions);
	for (unsigned n = 0; n < o->given_count; n++) {
		double each;

		if (strcmp(o->given[n].name, name))
			continue;
		for (unsigned k = 0; k < 2; k++) {
			struct result r;

			costs.access_ps = k ? 1100 : 100;
			r = play(e, s, 1, o->operations * 4, false, &(struct callers){0}, &costs);
			e->close(e);
			ns[k] = per(r.ps, 1000 * r.updates);
		}
		each = 100 + 1000 * (o->given[n].ns - ns[0]) / (ns[1] - ns[0]);
		return each > 20 ? (uint64_t)each : 20;
	}
	return otherwise;
}

static void print_row(const struct options *o, struct engine *e, const struct stream *s,
		      unsigned processors, uint64_t each_ps, bool first)
{
	struct costs costs = {.access_ps = each_ps, .drain_ps = (uint64_t)(1000 * o->drain_ns)};
	const double ns[2] = {o->near_ns, o->apart_ns};
	const char *const states[2] = {"near", "apart"};
	struct result r[2];
	const char *comma = "";

	for (unsigned n = 0; n < 2; n++) {
		costs.transfer_ps = (uint64_t)(1000 * ns[n]);
		r[n] = play(e, s, processors, o->operations, o->again, &o->callers, &costs);
		if (!n)
			e->close(e);
	}
	printf("%s\n{\"stream\": \"%s\", \"engine\": \"%s\", \"partitions\": %u, "
	       "\"processors\": %u,\n",
	       first ? "" : ",", s->name, e->name, e->partitions, processors);
	printf(" \"operations\": %llu, \"updates\": %llu, \"commits\": %llu, \"access_ns\": %g,\n",
	       (unsigned long long)r[1].operations, (unsigned long long)r[1].updates,
	       (unsigned long long)r[1].commits, (double)each_ps / 1000);
	for (unsigned n = 0; n < 2; n++) {
		struct counts *c = &r[n].counts;
		uint64_t moved = c->fetches + c->upgrades;

		printf(" \"%s\": {\"line_ns\": %g, \"transfers_per_update\": %.4f, "
		       "\"transfers_per_operation\": %.4f, \"upgrades_per_update\": %.4f, "
		       "\"fences_per_update\": %.4f, \"lines_per_update\": %.4f, "
		       "\"lock_hold_ns_per_operation\": %.2f, \"updates_per_second\": %.0f},\n",
		       states[n], ns[n], per(moved, r[n].updates), per(moved, r[n].operations),
		       per(c->upgrades, r[n].updates), per(c->fences, r[n].updates),
		       per(c->lines_written, r[n].updates),
		       per(c->locked_ps, 1000 * r[n].operations),
		       r[n].ps ? 1e12 * (double)r[n].updates / (double)r[n].ps : 0);
	}
	if (o->callers.handle_ps)
		printf(" \"callers\": {\"handle_ns\": %g, \"between_ns\": %g, \"merge\": %s, "
		       "\"operations_per_second\": %.0f, \"transactions_per_operation\": %.3f, "
		       "\"merged_per_operation\": %.3f, \"start_waits_per_operation\": %.3f},\n",
		       (double)o->callers.handle_ps / 1000, (double)o->callers.between_ps / 1000,
		       o->callers.merge ? "true" : "false",
		       r[1].ps ? 1e12 * (double)r[1].operations / (double)r[1].ps : 0,
		       per(r[1].transactions, r[1].operations), per(r[1].merged, r[1].operations),
		       per(r[1].start_waits, r[1].operations));
	printf(" \"parts\": [");
	for (const struct part *p = parts_count(); p->name; p++) {
		printf("%s{\"part\": \"%s\", \"per_update\": %.4f}", comma, p->name,
		       per(p->fetches + p->upgrades, r[1].updates));
		comma = ", ";
	}
	printf("]}");
	e->close(e);
}

static void usage(void)
{
	fprintf(stderr,
		"usage: transfers --stream NAME=FILE... [--operations N] [--processors N,N...]\n"
		"                 [--engine NAME] [--near-ns N] [--apart-ns N] [--drain-ns N]\n"
		"                 [--one-thread STREAM:ENGINE:P=NS]... [--again]\n"
		"                 [--handle-ns N [--between-ns N] [--merge] [--alone]]\n");
	exit(2);
}

static double number(const char *text, double least, double most)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= least && value <= most))
		usage();
	return value;
}

static void set_processors(struct options *o, char *list)
{
	o->processor_count = 0;
	for (char *word = strtok(list, ","); word; word = strtok(NULL, ",")) {
		if (o->processor_count == PROCESSORS)
			usage();
		o->processors[o->processor_count++] = (unsigned)number(word, 1, PROCESSORS);
	}
}

static void add_given(struct options *o, char *argument)
{
	char *value = strrchr(argument, '=');
	struct given *g = &o->given[o->given_count];

	if (!value || o->given_count == MOST_GIVEN)
		usage();
	*value++ = 0;
	snprintf(g->name, sizeof(g->name), "%s", argument);
	g->ns = number(value, 0, 1e9);
	o->given_count++;
}

static void add_stream(struct options *o, char *argument)
{
	char *path = strchr(argument, '=');

	if (!path || o->stream_count == MOST_STREAMS)
		usage();
	*path++ = 0;
	if (stream_load(&o->streams[o->stream_count++], argument, path))
		exit(2);
}

static void read_options(struct options *o, int argc, char **argv)
{
	static const struct option options[] = {{"stream", required_argument, NULL, 's'},
						{"operations", required_argument, NULL, 'o'},
						{"processors", required_argument, NULL, 'p'},
						{"engine", required_argument, NULL, 'e'},
						{"near-ns", required_argument, NULL, 'n'},
						{"apart-ns", required_argument, NULL, 'a'},
						{"drain-ns", required_argument, NULL, 'd'},
						{"one-thread", required_argument, NULL, '1'},
						{"again", no_argument, NULL, 'A'},
						{"handle-ns", required_argument, NULL, 'h'},
						{"between-ns", required_argument, NULL, 'b'},
						{"merge", no_argument, NULL, 'm'},
						{"alone", no_argument, NULL, 'l'},
						{0}};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		switch (option) {
		case 's':
			add_stream(o, optarg);
			break;
		case 'o':
			o->operations = (unsigned)number(optarg, 1, 1e6);
			break;
		case 'p':
			set_processors(o, optarg);
			break;
		case 'e':
			o->engine = optarg;
			break;
		case 'n':
			o->near_ns = number(optarg, 0, 1e6);
			break;
		case 'a':
			o->apart_ns = number(optarg, 0, 1e6);
			break;
		case 'd':
			o->drain_ns = number(optarg, 0, 1e6);
			break;
		case '1':
			add_given(o, optarg);
			break;
		case 'A':
			o->again = true;
			break;
		case 'h':
			o->callers.handle_ps = (uint64_t)(1000 * number(optarg, 0, 1e6));
			break;
		case 'b':
			o->callers.between_ps = (uint64_t)(1000 * number(optarg, 0, 1e6));
			break;
		case 'm':
			o->callers.merge = true;
			break;
		case 'l':
			o->callers.alone = true;
			break;
		default:
			usage();
		}
	if (optind != argc || !o->stream_count)
		usage();
	if (!o->callers.handle_ps &&
	    (o->callers.between_ps || o->callers.merge || o->callers.alone))
		usage();
}

/* Callers use the journal itself, without the engine's lock. */
static bool may_have_callers(const struct engine *e)
{
	return e->apply == nvjournal_apply && !e->option && strcmp(e->name, COMMIT_WORKER);
}

int main(int argc, char **argv)
{
	static struct options o = {.processors = {1, 2, 4, 8, 16, 32, 64},
				   .processor_count = 7,
				   .operations = 400,
				   .near_ns = 45,
				   .apart_ns = 220,
				   .drain_ns = 95};
	bool first = true;

	read_options(&o, argc, argv);
	region.persistence = simulated_persistence();
	region.size_bytes = REGION_BYTES;
	region.base = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (region.base == MAP_FAILED) {
		fprintf(stderr, "transfers: no memory for the region\n");
		return 2;
	}
	parts_set_region(&region);
	printf("{\"transfers\": [");
	for (unsigned s = 0; s < o.stream_count; s++) {
		uint64_t each_ps = UNKNOWN_PS;

		for (unsigned n = 0; n < SUBJECTS; n++) {
			struct engine *e = &subjects[n];

			if (o.engine && strcmp(o.engine, e->name))
				continue;
			if (o.callers.handle_ps && !may_have_callers(e))
				continue;
			/* The same code with more rings takes as long for an access. */
			if (n && strcmp(e->name, subjects[n - 1].name))
				each_ps = UNKNOWN_PS;
			each_ps = access_ps(&o, e, &o.streams[s], each_ps);
			for (unsigned p = 0; p < o.processor_count; p++) {
				if (o.processors[p] == PROCESSORS &&
				    !strcmp(e->name, COMMIT_WORKER))
					continue; /* there is no processor left for it */
				print_row(&o, e, &o.streams[s], o.processors[p], each_ps, first);
				first = false;
			}
		}
	}
	printf("\n]}\n");
	for (unsigned s = 0; s < o.stream_count; s++)
		stream_free(&o.streams[s]);
	return ferror(stdout) ? 2 : 0;
}
