/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline of paper 3, fine-grained journaling with one lock: records of the
 * lines that changed, as nvjournal's, but a place is taken, filled, flushed and
 * flagged under one mutex, and so is a commit.
 *
 * It has less to do than nvjournal: no checksum, as its flag lies in the record;
 * no image of each block, no credits, no checkpoint. It stands for the locking.
 *
 * Option 0: the mutex is held, and there is a fence, for each record, as in paper
 * 3, Fig. 2. Option 1: for each operation, as nvjournal needs one only, too.
 */
#include "engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct header {
	uint64_t block;
	uint64_t mask;
	uint64_t tid;
	uint64_t unused[4];
	uint64_t flag; /* 1: all before it in the record is persistent */
};

struct one_lock {
	pthread_mutex_t lock __attribute__((aligned(128)));
	uint64_t head __attribute__((aligned(128))); /* of the lines, bytes */
	uint64_t tid;
	const struct nvj_region *region;
	bool by_operation;
};

int one_lock_open(struct engine *e, const struct bench_setup *s)
{
	struct one_lock *l = aligned_alloc(128, sizeof(*l));

	e->state = l;
	if (!l) {
		fprintf(stderr, "bench: no memory\n");
		return -1;
	}
	memset(l, 0, sizeof(*l));
	baseline_lock_init(&l->lock);
	l->region = s->region;
	l->by_operation = e->option == 1;
	return 0;
}

/* Takes the place for a record; begins again at the start when the region is full. */
static uint8_t *reserve(struct one_lock *l, size_t bytes)
{
	if (l->head + bytes > l->region->size_bytes)
		l->head = 0;
	l->head += bytes;
	return (uint8_t *)l->region->base + l->head - bytes;
}

/* Header and changed lines; returns the header's place. */
static uint8_t *write_record(struct one_lock *l, struct worker *w, const struct update *u,
			     const uint8_t *image)
{
	const struct nvj_persistence *p = l->region->persistence;
	struct header header = {.block = w->first_block + u->block, .mask = u->mask, .tid = l->tid};
	uint8_t *at = reserve(l, NVJ_LINE_BYTES * (1 + (size_t)u->line_count));
	uint8_t *to = at;

	p->write(p, to, &header, sizeof(header));
	for (uint64_t left = u->mask; left;) {
		unsigned first = (unsigned)__builtin_ctzll(left), count = 0;

		to += NVJ_LINE_BYTES;
		/* Lines side by side go in one piece. */
		while (left >> first >> count & 1) {
			left &= ~(UINT64_C(1) << first << count);
			if (++count + first == NVJ_BLOCK_LINES)
				break;
		}
		p->write(p, to, image + (size_t)first * NVJ_LINE_BYTES,
			 (size_t)count * NVJ_LINE_BYTES);
		to += (size_t)(count - 1) * NVJ_LINE_BYTES;
	}
	return at;
}

/* The flag is stored after the fence: it must not be persistent before the lines. */
static void flag_record(struct one_lock *l, uint8_t *at)
{
	const struct nvj_persistence *p = l->region->persistence;

	p->store64(p, (uint64_t *)(at + offsetof(struct header, flag)), 1);
}

int one_lock_apply(struct engine *e, struct worker *w, const struct operation *o)
{
	struct one_lock *l = e->state;
	const struct nvj_persistence *p = l->region->persistence;
	uint8_t *records[o->count + 1];

	if (l->by_operation) {
		for (uint32_t k = 0; k < o->count; k++)
			worker_change(w, &o->updates[k]);
		pthread_mutex_lock(&l->lock);
		for (uint32_t k = 0; k < o->count; k++)
			records[k] = write_record(l, w, &o->updates[k],
						  w->images + (size_t)o->updates[k].index *
								      NVJ_BLOCK_BYTES);
		p->fence(p);
		for (uint32_t k = 0; k < o->count; k++)
			flag_record(l, records[k]);
		pthread_mutex_unlock(&l->lock);
		return 0;
	}
	for (uint32_t k = 0; k < o->count; k++) {
		const uint8_t *image = worker_change(w, &o->updates[k]);

		pthread_mutex_lock(&l->lock);
		records[0] = write_record(l, w, &o->updates[k], image);
		p->fence(p);
		flag_record(l, records[0]);
		pthread_mutex_unlock(&l->lock);
	}
	return 0;
}

/* The flags before it are made persistent with the record, its own flag after it. */
int one_lock_commit(struct engine *e, struct worker *w)
{
	struct one_lock *l = e->state;
	const struct nvj_persistence *p = l->region->persistence;
	struct header header = {.block = ~UINT64_C(0)};
	uint8_t *at;

	(void)w;
	pthread_mutex_lock(&l->lock);
	header.tid = l->tid++;
	at = reserve(l, sizeof(header));
	p->write(p, at, &header, sizeof(header));
	p->fence(p);
	flag_record(l, at);
	p->fence(p);
	pthread_mutex_unlock(&l->lock);
	return 0;
}

void one_lock_close(struct engine *e)
{
	struct one_lock *l = e->state;

	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l);
	e->state = NULL;
}
