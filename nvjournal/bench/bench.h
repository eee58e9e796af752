/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the benchmark have in common: the region, how much is
 * measured, threads that begin together, medians, and the JSON that is printed.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <stdio.h>

#include "engine.h"
#include "nvjournal_user.h"

#define MAX_ROUNDS 101u
/* Further rounds, for the state of the processors that was seen too rarely: over the others. */
#define FURTHER_ROUNDS 2u
#define MAX_STREAMS 4u
#define MAX_LATENCIES 16u

struct bench {
	struct nvju_region *memory;
	const struct nvj_region *region;
	struct stream streams[MAX_STREAMS];
	unsigned stream_count;
	const char *directory; /* for files in memory */
	const char *disk;      /* a directory on a disk */
	unsigned rounds;       /* medians of so many, after one that warms up */
	bool quick;            /* less of each */
	const char *engine;    /* only those of this name; NULL: all */
	/* What each fence is made to wait besides, in the section "latency". */
	unsigned latency_count;
	uint64_t latency_ns[MAX_LATENCIES];
	double nearest_ns;     /* the shortest way of a line so far; 0: none yet (distance.c) */
	double patience_ns[2]; /* how long wait_for still waits for NEAR, and for APART */
	FILE *out;
	bool comma;
};

/* --- Time, threads, medians (threads.c) --- */

uint64_t now_ns(void);

/*
 * Calls work(argument, n) in count threads, which begin together, each on the
 * processor n mod processors; returns the seconds from there until the last has
 * returned. A work that returns other than 0 ends the program.
 */
double run_threads(unsigned count, int (*work)(void *argument, unsigned n), void *argument);

struct spread {
	double median, low, high; /* of the rounds */
};
struct spread spread_of(const double *values, unsigned count);
double percentile(double *values, size_t count, double part); /* sorts them */

void *must_allocate(size_t bytes);
void must(int error, const char *what);

/* Rounds of what takes milliseconds only: more of them. */
unsigned short_rounds(const struct bench *b);

/* --- Where the processors are (distance.c) --- */

/* A line's way from processor 0 to another, in the mean of so many there and back. */
double line_transfer_ns(unsigned other, unsigned trips);

/* A line's way before and after a measurement; 0 and 0: of one thread alone. */
struct way {
	double before_ns, after_ns;
};

/* The way now to the farthest of the processors that so many threads run on. */
double distance_ns(struct bench *b, unsigned threads);

/*
 * The processors during a measurement: near each other all the time, or apart all the
 * time; NEITHER if that changed, or if one thread ran alone.
 */
enum nearness { NEAR, APART, NEITHER };
#define STATES 2u
enum nearness nearness_of(const struct bench *b, struct way way);

/*
 * Waits until the processors are in this state. False: the patience for it is used
 * up, with nothing gained.
 */
bool wait_for(struct bench *b, enum nearness state, unsigned threads);
/* False: wait_for(b, state) would return false at once. */
bool may_wait_for(const struct bench *b, enum nearness state);

/* Rounds of an engine, or of another subject. */
struct rounds {
	unsigned count;
	unsigned number[MAX_ROUNDS]; /* of rounds with the same number one follows the other */
	struct way way[MAX_ROUNDS];
	double value[MAX_ROUNDS], other[MAX_ROUNDS];
};

/* How many rounds both have with the same number, and in this state. */
unsigned pairs_of(const struct bench *b, const struct rounds *one, const struct rounds *two,
		  enum nearness state);
/* So many of each state are enough for a ratio; fewer: further rounds are measured. */
#define WANTED_PAIRS 3u
/* Prints "rounds": each with its number, its values under these keys, and its way. */
void json_rounds(struct bench *b, const struct rounds *rounds, const char *value,
		 const char *other);

/* --- JSON (json.c) --- */

void json_open(struct bench *b, const char *key, char bracket);
void json_close(struct bench *b, char bracket);
void json_number(struct bench *b, const char *key, double value);
void json_text(struct bench *b, const char *key, const char *value);
void json_spread(struct bench *b, const char *key, struct spread value);

/* --- The parts, each prints its section --- */

void measure_streams(struct bench *b);    /* engines.c */
void measure_updates(struct bench *b);    /* updates.c: floor, scaling */
void measure_commit(struct bench *b);     /* commit.c */
void measure_recovery(struct bench *b);   /* recovery.c */
void measure_rings(struct bench *b);      /* rings.c */
void measure_checkpoint(struct bench *b); /* checkpoint.c */
void measure_order(struct bench *b);      /* order.c */
void measure_latency(struct bench *b);    /* latency.c */
void measure_data(struct bench *b);       /* data.c */
void measure_machine(struct bench *b);    /* machine.c */

/* One round of an engine with the stream in b's region: its rate (engines.c). */
double updates_per_second(struct bench *b, struct engine *e, const struct stream *s,
			  unsigned threads, uint8_t *images);

/* --- A journal in the region (journal.c) --- */

struct test_journal {
	struct nvj *journal;
	struct nvju_disk *disk;
	struct nvju_platform platform;
	struct nvj_region region;
};

struct journal_options {
	unsigned partitions;
	enum nvj_placement placement; /* 0: by block */
	unsigned checkpoint_percent;
	bool workers;
	const struct nvju_disk_model *disk; /* NULL: at once */
	uint64_t disk_blocks;
	uint64_t region_bytes; /* 0: all */
	bool usual_commits;    /* as many slots for transactions as nvj format makes */
	void (*change)(struct nvj_platform *platform); /* NULL: nothing */
};

/* Formats and opens; ends the program if that fails. */
void journal_begin(struct bench *b, struct test_journal *t, const struct journal_options *o);
/* Closes as a crash would. */
void journal_end(struct test_journal *t);

/* --- A full journal (recovery.c) --- */

#define FILL_THREADS 16u
#define FILL_BLOCKS (FILL_THREADS * THREAD_STRIDE)

/*
 * Fills the journal with the stream, of so many threads' blocks, until a ring is nearly
 * half full or there are so many commits; with operations: with so many. Returns their
 * number. images: of all threads.
 */
uint64_t fill_journal(struct test_journal *t, const struct stream *s, uint8_t *images,
		      unsigned commit_each, uint64_t most_commits, uint64_t operations);

#endif
