/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to the region and to the disk, in the order it happened, and by
 * which thread: enough to make each state a crash could leave.
 */
#ifndef TEST_TRACE_H
#define TEST_TRACE_H

#include <stddef.h>
#include <stdint.h>

enum trace_kind {
	TRACE_WRITE,       /* bytes at where; not persistent before a fence of the thread */
	TRACE_STORE64,     /* 8 bytes at once; as above */
	TRACE_FENCE,       /* of the thread */
	TRACE_SYNC_START,  /* msync of the bytes at where, of a plain file, begins */
	TRACE_SYNC_END,    /* and ends: what had been written there before it is persistent */
	TRACE_DISK_START,  /* a write of block where began; it has number id */
	TRACE_DISK_END,    /* write id ended: in the disk's cache */
	TRACE_DISK_FAILED, /* write id failed, and nothing of it is there */
	TRACE_DISK_FLUSH,  /* what had ended is on the disk for good */
	TRACE_COMMITTED,   /* nvj_commit returned: transaction where survives */
	TRACE_DIRECT,      /* the caller begins to use block where itself; direct id */
	TRACE_DIRECT_DONE, /* and that is on the disk for good */
	TRACE_FORMATTED,   /* nvj_format returned: there is a journal now */
	TRACE_OPENED,      /* nvj_open has returned; its anchor is transaction where */
	TRACE_ORDERED,     /* before_commit was called for transaction where, and returns */
};

struct trace_event {
	uint8_t kind;
	uint8_t thread;
	uint32_t bytes;
	uint32_t id;
	uint64_t where; /* offset in the region, block or transaction */
	uint8_t *data;
};

struct trace_memory;

struct trace {
	struct trace_event *event;
	size_t count, room;
	struct trace_memory *memory;
};

/* Appends; data is copied (NULL: there is none). */
void trace_add(struct trace *t, enum trace_kind kind, unsigned thread, uint64_t where, uint32_t id,
	       const void *data, size_t bytes);
/* Empty again; keeps some memory. */
void trace_clear(struct trace *t);
void trace_free(struct trace *t);
const char *trace_name(unsigned kind);

#endif
