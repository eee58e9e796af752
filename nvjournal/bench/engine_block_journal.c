/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal as jbd2's, on a file in memory: whole blocks, one running
 * transaction, and one thread that writes descriptors, blocks and a commit block,
 * waits for the disk, and wakes those who waited for it. It stands for what
 * nvjournal replaces; it leaves out what jbd2 does besides (checksums, escaping,
 * revokes, checkpoint).
 */
#include "engine.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef FILE_BYTES /* a test uses fewer */
#define FILE_BYTES (UINT64_C(256) << 20)
#endif
/* jbd2 closes a transaction at a quarter of its journal at the latest. */
#define MAX_BLOCKS (FILE_BYTES / NVJ_BLOCK_BYTES / 4)
#define MIN_SLOTS (2 * MAX_BLOCKS)
#define TAGS_PER_DESCRIPTOR 253u
#define MAGIC 0xc03b3998u

/* The blocks of a transaction, each once. */
struct transaction {
	uint64_t tid;
	uint32_t count;
	uint64_t *numbers;
	const uint8_t **callers; /* the images, which change until the transaction closes */
	uint8_t *images;         /* as they were then */
	uint32_t *slots;         /* hash table: place + 1 */
};

struct block_journal {
	pthread_mutex_t lock;
	pthread_cond_t wanted, done; /* a commit is */
	pthread_t thread;
	struct transaction two[2];
	struct transaction *running;
	uint64_t requested, committed; /* tids */
	unsigned open_handles;         /* of the running transaction */
	pthread_cond_t closed;         /* open_handles is 0, or the lock is off */
	bool locked;                   /* no handle joins: the transaction is to close */
	bool stop, failed, started;
	int file;
	uint64_t head;
	uint64_t bytes, syncs;
	uint64_t copied; /* blocks */
};

static int transaction_init(struct transaction *t)
{
	t->numbers = calloc(MAX_BLOCKS, sizeof(*t->numbers));
	t->callers = calloc(MAX_BLOCKS, sizeof(*t->callers));
	t->images = malloc((size_t)MAX_BLOCKS * NVJ_BLOCK_BYTES);
	t->slots = calloc(MIN_SLOTS, sizeof(*t->slots));
	return t->numbers && t->callers && t->images && t->slots ? 0 : -1;
}

static uint32_t *slot_of(struct transaction *t, uint64_t number)
{
	uint32_t at = (uint32_t)((number * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % MIN_SLOTS;

	while (t->slots[at] && t->numbers[t->slots[at] - 1] != number)
		at = (at + 1) % MIN_SLOTS;
	return &t->slots[at];
}

static void clear(struct transaction *t)
{
	for (uint32_t n = t->count; n > 0; n--)
		*slot_of(t, t->numbers[n - 1]) = 0;
	t->count = 0;
}

static int put(struct block_journal *j, const struct iovec *pieces, int count)
{
	size_t bytes = 0;

	for (int n = 0; n < count; n++)
		bytes += pieces[n].iov_len;
	if (j->head + bytes > FILE_BYTES)
		j->head = 0;
	if (pwritev(j->file, pieces, count, (off_t)j->head) != (ssize_t)bytes)
		return -1;
	j->head += bytes;
	j->bytes += bytes;
	return 0;
}

/* Descriptors and blocks; the disk is flushed; the commit block; and again. */
static int write_transaction(struct block_journal *j, const struct transaction *t)
{
	static uint8_t block[NVJ_BLOCK_BYTES] __attribute__((aligned(4096)));
	uint32_t *words = (uint32_t *)block;
	struct iovec pieces[2] = {{.iov_base = block, .iov_len = sizeof(block)}};

	words[0] = MAGIC;
	words[2] = (uint32_t)t->tid;
	for (uint32_t done = 0, count; done < t->count; done += count) {
		count = t->count - done < TAGS_PER_DESCRIPTOR ? t->count - done
							      : TAGS_PER_DESCRIPTOR;
		words[1] = 1;
		for (uint32_t n = 0; n < count; n++)
			memcpy(&words[4 + 4 * (size_t)n], &t->numbers[done + n], 8);
		pieces[1].iov_base = t->images + (size_t)done * NVJ_BLOCK_BYTES;
		pieces[1].iov_len = (size_t)count * NVJ_BLOCK_BYTES;
		if (put(j, pieces, 2))
			return -1;
	}
	j->syncs += 2;
	if (fdatasync(j->file))
		return -1;
	words[1] = 2;
	return put(j, pieces, 1) || fdatasync(j->file) ? -1 : 0;
}

/*
 * The blocks as the transaction commits them: from now on the next one may change them.
 * jbd2 copies only those that it does change while they are written, which also wait then.
 */
static void freeze(struct block_journal *j, struct transaction *t)
{
	for (uint32_t n = 0; n < t->count; n++)
		memcpy(t->images + (size_t)n * NVJ_BLOCK_BYTES, t->callers[n], NVJ_BLOCK_BYTES);
	j->copied += t->count;
}

static void *commit_thread(void *argument)
{
	struct block_journal *j = argument;

	pthread_mutex_lock(&j->lock);
	for (;;) {
		struct transaction *t = j->running;
		int error;

		while (j->requested < t->tid && !j->stop)
			pthread_cond_wait(&j->wanted, &j->lock);
		if (j->requested < t->tid)
			break;
		j->locked = true;
		while (j->open_handles)
			pthread_cond_wait(&j->closed, &j->lock);
		freeze(j, t);
		j->running = t == &j->two[0] ? &j->two[1] : &j->two[0];
		j->running->tid = t->tid + 1;
		j->locked = false;
		pthread_cond_broadcast(&j->closed);
		pthread_mutex_unlock(&j->lock);
		error = write_transaction(j, t);
		clear(t);
		pthread_mutex_lock(&j->lock);
		j->committed = t->tid;
		j->failed |= error != 0;
		pthread_cond_broadcast(&j->done);
	}
	pthread_mutex_unlock(&j->lock);
	return NULL;
}

int block_journal_open(struct engine *e, const struct bench_setup *s)
{
	struct block_journal *j = calloc(1, sizeof(*j));
	char path[256];

	e->state = j;
	if (!j || transaction_init(&j->two[0]) || transaction_init(&j->two[1])) {
		fprintf(stderr, "bench: no memory\n");
		return -1;
	}
	snprintf(path, sizeof(path), "%s/nvj-bench-XXXXXX", s->directory);
	j->file = mkstemp(path);
	if (j->file < 0 || unlink(path) || posix_fallocate(j->file, 0, (off_t)FILE_BYTES)) {
		perror("bench: cannot make a journal's file in memory");
		return -1;
	}
	j->running = &j->two[0];
	j->running->tid = 1;
	baseline_lock_init(&j->lock);
	pthread_cond_init(&j->wanted, NULL);
	pthread_cond_init(&j->done, NULL);
	pthread_cond_init(&j->closed, NULL);
	j->started = !pthread_create(&j->thread, NULL, commit_thread, j);
	return j->started ? 0 : -1;
}

int block_journal_apply(struct engine *e, struct worker *w, const struct operation *o)
{
	struct block_journal *j = e->state;
	struct transaction *t;

	pthread_mutex_lock(&j->lock);
	while (j->locked)
		pthread_cond_wait(&j->closed, &j->lock);
	t = j->running;
	j->open_handles++;
	w->tid = t->tid;
	for (uint32_t k = 0; k < o->count; k++) {
		const struct update *u = &o->updates[k];
		uint64_t number = w->first_block + u->block;
		uint8_t *image = worker_change(w, u);
		uint32_t *slot = slot_of(t, number);

		if (!*slot) {
			if (t->count == MAX_BLOCKS) {
				fprintf(stderr, "bench: a transaction of over %lu blocks\n",
					(unsigned long)MAX_BLOCKS);
				exit(2);
			}
			t->numbers[t->count] = number;
			t->callers[t->count] = image;
			*slot = ++t->count;
		}
	}
	if (!--j->open_handles && j->locked)
		pthread_cond_broadcast(&j->closed);
	pthread_mutex_unlock(&j->lock);
	return 0;
}

int block_journal_commit(struct engine *e, struct worker *w)
{
	struct block_journal *j = e->state;
	int error;

	pthread_mutex_lock(&j->lock);
	if (j->requested < w->tid) {
		j->requested = w->tid;
		pthread_cond_signal(&j->wanted);
	}
	while (j->committed < w->tid)
		pthread_cond_wait(&j->done, &j->lock);
	error = j->failed ? -1 : 0;
	pthread_mutex_unlock(&j->lock);
	if (error)
		fprintf(stderr, "bench: the block journal's file cannot be written\n");
	return error;
}

void block_journal_counts(struct engine *e, struct bench_counts *counts)
{
	struct block_journal *j = e->state;

	pthread_mutex_lock(&j->lock);
	counts->bytes = j->bytes;
	counts->syncs = j->syncs;
	pthread_mutex_unlock(&j->lock);
}

void block_journal_close(struct engine *e)
{
	struct block_journal *j = e->state;

	if (!j)
		return;
	if (j->started) {
		pthread_mutex_lock(&j->lock);
		j->stop = true;
		pthread_cond_signal(&j->wanted);
		pthread_mutex_unlock(&j->lock);
		pthread_join(j->thread, NULL);
	}
	for (int n = 0; n < 2; n++) {
		free(j->two[n].numbers);
		free(j->two[n].callers);
		free(j->two[n].images);
		free(j->two[n].slots);
	}
	if (j->file > 0)
		close(j->file);
	free(j);
	e->state = NULL;
}
