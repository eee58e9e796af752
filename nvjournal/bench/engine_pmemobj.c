/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of libpmemobj (PMDK) on a pool in /dev/shm. The blocks lie in the
 * pool itself; an operation takes a snapshot of the lines before it changes them. So
 * it is an undo log. A transaction has the operations of one thread up to its commit,
 * as many as one of nvjournal.
 */
#ifdef BENCH_PMEMOBJ
#include "engine.h"

#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_EXTRA (UINT64_C(256) << 20)

struct pmemobj_engine {
	PMEMobjpool *pool;
	char path[256];
	uint8_t *blocks[MAX_THREADS]; /* of each thread, in the pool */
};

static int failed(const char *what)
{
	fprintf(stderr, "bench: libpmemobj cannot %s: %s\n", what, pmemobj_errormsg());
	return -1;
}

int pmemobj_engine_open(struct engine *e, const struct bench_setup *s)
{
	size_t bytes = (size_t)s->stream->blocks * NVJ_BLOCK_BYTES;
	struct pmemobj_engine *p = calloc(1, sizeof(*p));
	int file;

	e->state = p;
	if (!p)
		return -1;
	snprintf(p->path, sizeof(p->path), "%s/nvj-bench-pool-XXXXXX", s->directory);
	file = mkstemp(p->path);
	if (file < 0)
		return failed("make a file");
	close(file);
	unlink(p->path);
	p->pool = pmemobj_create(p->path, "bench", POOL_EXTRA + 2 * s->threads * bytes, 0600);
	if (!p->pool)
		return failed("create a pool");
	/* Mapped it lives without a name, and goes with the process. */
	unlink(p->path);
	for (unsigned t = 0; t < s->threads; t++) {
		PMEMoid oid;

		if (pmemobj_zalloc(p->pool, &oid, bytes + NVJ_BLOCK_BYTES, 1))
			return failed("allocate the blocks");
		/* At a multiple of a line, as ours. */
		p->blocks[t] =
			(uint8_t *)(((uintptr_t)pmemobj_direct(oid) + 4095) & ~(uintptr_t)4095);
		for (size_t n = 0; n < s->stream->initial; n++) {
			const struct operation *o = &s->stream->operations[n];

			for (uint32_t k = 0; k < o->count; k++) {
				struct worker w = {.engine = e, .images = p->blocks[t]};

				worker_change(&w, &o->updates[k]);
			}
		}
		pmemobj_persist(p->pool, p->blocks[t], bytes);
	}
	return 0;
}

/* Takes a snapshot of each run of lines, then changes them. */
static int snapshot(uint8_t *block, uint64_t mask)
{
	for (unsigned first = 0; first < NVJ_BLOCK_LINES; first++) {
		unsigned end = first;

		while (end < NVJ_BLOCK_LINES && mask >> end & 1)
			end++;
		if (end == first)
			continue;
		if (pmemobj_tx_add_range_direct(block + (size_t)first * NVJ_LINE_BYTES,
						(size_t)(end - first) * NVJ_LINE_BYTES))
			return -1;
		first = end;
	}
	return 0;
}

int pmemobj_engine_apply(struct engine *e, struct worker *w, const struct operation *o)
{
	struct pmemobj_engine *p = e->state;
	struct worker in_pool = *w;
	int error = 0;

	in_pool.images = p->blocks[w->number];
	if (pmemobj_tx_stage() == TX_STAGE_NONE && pmemobj_tx_begin(p->pool, NULL, TX_PARAM_NONE))
		return failed("begin a transaction");
	for (uint32_t k = 0; k < o->count && !error; k++) {
		const struct update *u = &o->updates[k];

		error = snapshot(in_pool.images + (size_t)u->index * NVJ_BLOCK_BYTES, u->mask);
		if (!error)
			worker_change(&in_pool, u);
	}
	if (!error)
		return 0;
	pmemobj_tx_end(); /* the failure has aborted it */
	return failed("take a snapshot");
}

int pmemobj_engine_commit(struct engine *e, struct worker *w)
{
	(void)e;
	(void)w;
	if (pmemobj_tx_stage() == TX_STAGE_NONE)
		return 0;
	pmemobj_tx_commit();
	return pmemobj_tx_end() ? failed("commit a transaction") : 0;
}

void pmemobj_engine_close(struct engine *e)
{
	struct pmemobj_engine *p = e->state;

	if (!p)
		return;
	if (p->pool)
		pmemobj_close(p->pool);
	free(p);
	e->state = NULL;
}
#else
typedef int bench_no_pmemobj;
#endif
