/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is compared: journals behind one small interface. An engine takes the
 * operations of a stream from any number of threads, each operation whole or not
 * at all after a crash, and a commit after which they survive one.
 *
 * Each thread has blocks of its own: block b of the stream is block
 * b + thread * THREAD_STRIDE, with an image in the thread's memory. So what is
 * measured is the journal, and not the locks that a caller has on blocks that
 * threads share. The stride is odd: a block that is hot in the stream lies in
 * another partition for each thread.
 */
#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvjournal.h"
#include "stream.h"

#define MAX_THREADS 64u
#define THREAD_STRIDE ((UINT64_C(1) << 18) + 1)

/* What an engine may use. */
struct bench_setup {
	/* The memory that survives, and how stores to it do: the same for all of ours. */
	const struct nvj_region *region;
	const struct stream *stream;
	unsigned threads;
	const char *directory; /* for files in memory: /dev/shm */
};

/* What became persistent, as far as the engine knows. */
struct bench_counts {
	uint64_t bytes; /* written to the journal */
	uint64_t syncs; /* fdatasync */
};

struct engine;

/* Each in lines of its own: threads write into theirs. */
struct worker {
	struct engine *engine __attribute__((aligned(128)));
	unsigned number;
	uint64_t first_block; /* added to the stream's numbers */
	uint8_t *images;      /* of each distinct block of the stream */
	uint64_t tid;         /* of nvjournal: of the last operation */
};

struct engine {
	const char *name;
	unsigned partitions;
	enum nvj_placement placement; /* of nvjournal */
	/* Lines of zeros are made others, so that they are not left out of a record. */
	bool without_zeros;
	/* 0, or -1 with a message on stderr. */
	int (*open)(struct engine *engine, const struct bench_setup *setup);
	int (*apply)(struct engine *engine, struct worker *worker, const struct operation *o);
	int (*commit)(struct engine *engine, struct worker *worker);
	void (*counts)(struct engine *engine, struct bench_counts *counts);
	void (*close)(struct engine *engine);
	bool ours; /* writes to the region only, through its persistence */
	/* Ratios to it need all rounds, and further ones. */
	bool compared;
	bool committed; /* each operation is committed by itself, whatever is asked for */
	bool stepped;   /* it has instructions of its own: counted by step.h */
	void *state;
	unsigned option;
};

/* The engine's thread's image of the block, changed as the update says. */
uint8_t *worker_change(struct worker *worker, const struct update *update);

/* All engines, in the order of the tables; ends with a NULL name. */
extern struct engine engines[];

int nvjournal_open(struct engine *e, const struct bench_setup *s);
int nvjournal_apply(struct engine *e, struct worker *w, const struct operation *o);
int nvjournal_apply_blocks(struct engine *e, struct worker *w, const struct operation *o);
int nvjournal_commit(struct engine *e, struct worker *w);
void nvjournal_close(struct engine *e);

int one_lock_open(struct engine *e, const struct bench_setup *s);
int one_lock_apply(struct engine *e, struct worker *w, const struct operation *o);
int one_lock_commit(struct engine *e, struct worker *w);
void one_lock_close(struct engine *e);

int block_journal_open(struct engine *e, const struct bench_setup *s);
int block_journal_apply(struct engine *e, struct worker *w, const struct operation *o);
int block_journal_commit(struct engine *e, struct worker *w);
void block_journal_counts(struct engine *e, struct bench_counts *counts);
void block_journal_close(struct engine *e);

int pmemobj_engine_open(struct engine *e, const struct bench_setup *s);
int pmemobj_engine_apply(struct engine *e, struct worker *w, const struct operation *o);
int pmemobj_engine_commit(struct engine *e, struct worker *w);
void pmemobj_engine_close(struct engine *e);

int pmemlog_engine_open(struct engine *e, const struct bench_setup *s);
int pmemlog_engine_apply(struct engine *e, struct worker *w, const struct operation *o);
void pmemlog_engine_close(struct engine *e);

int commit_nothing(struct engine *e, struct worker *w);

/*
 * The lock of this repository's baselines. It spins briefly before it sleeps (glibc's adaptive
 * mutex): with one that sleeps at once a baseline is slower. PMDK has locks of its own.
 */
void baseline_lock_init(pthread_mutex_t *lock);

#endif
