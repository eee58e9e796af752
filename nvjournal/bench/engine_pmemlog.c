/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libpmemlog (PMDK) on a pool in /dev/shm: an operation is one append of its
 * records, whole or not at all. The library has one lock for the log, and each
 * append is persistent when it returns. A full log is rewound.
 */
#ifdef BENCH_PMEMLOG
#include "engine.h"

#include <errno.h>
#include <fcntl.h>
#include <libpmemlog.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_BYTES (UINT64_C(512) << 20)

struct pmemlog_engine {
	PMEMlogpool *pool;
	char path[256];
};

struct header {
	uint64_t block;
	uint64_t mask;
};

static int failed(const char *what)
{
	fprintf(stderr, "bench: libpmemlog cannot %s: %s\n", what, pmemlog_errormsg());
	return -1;
}

int pmemlog_engine_open(struct engine *e, const struct bench_setup *s)
{
	struct pmemlog_engine *p = calloc(1, sizeof(*p));
	int file;

	e->state = p;
	if (!p)
		return -1;
	snprintf(p->path, sizeof(p->path), "%s/nvj-bench-log-XXXXXX", s->directory);
	file = mkstemp(p->path);
	if (file < 0)
		return failed("make a file");
	/* All its memory is there before the time is taken. */
	if (posix_fallocate(file, 0, (off_t)POOL_BYTES))
		return failed("make a file");
	close(file);
	p->pool = pmemlog_create(p->path, 0, 0600);
	/* Mapped it lives without a name, and goes with the process. */
	unlink(p->path);
	return p->pool ? 0 : failed("create a pool");
}

int pmemlog_engine_apply(struct engine *e, struct worker *w, const struct operation *o)
{
	struct pmemlog_engine *p = e->state;
	struct header headers[o->count + 1];
	struct iovec pieces[o->count + o->lines + 1];
	int count = 0;

	for (uint32_t k = 0; k < o->count; k++) {
		const struct update *u = &o->updates[k];
		uint8_t *image = worker_change(w, u);

		headers[k].block = w->first_block + u->block;
		headers[k].mask = u->mask;
		pieces[count].iov_base = &headers[k];
		pieces[count++].iov_len = sizeof(headers[k]);
		for (uint64_t left = u->mask; left; left &= left - 1) {
			pieces[count].iov_base =
				image + NVJ_LINE_BYTES * (unsigned)__builtin_ctzll(left);
			pieces[count++].iov_len = NVJ_LINE_BYTES;
		}
	}
	while (pmemlog_appendv(p->pool, pieces, count)) {
		if (errno != ENOSPC)
			return failed("append");
		pmemlog_rewind(p->pool);
	}
	return 0;
}

void pmemlog_engine_close(struct engine *e)
{
	struct pmemlog_engine *p = e->state;

	if (!p)
		return;
	if (p->pool)
		pmemlog_close(p->pool);
	free(p);
	e->state = NULL;
}
#else
typedef int bench_no_pmemlog;
#endif
