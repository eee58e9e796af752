/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording of block updates, in memory: what "daybook-bench updates" wrote.
 * The format is documented in internal/blockstream/doc.go.
 */
#ifndef BENCH_STREAM_H
#define BENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>

struct update {
	uint64_t block;
	uint64_t mask;       /* of lines that changed */
	const void *lines;   /* as they are now, 64 bytes for each bit of mask */
	uint32_t index;      /* of the block among the distinct ones */
	uint32_t line_count; /* bits of mask */
};

struct operation {
	const struct update *updates;
	uint32_t count;
	uint32_t lines; /* of all updates */
};

struct stream {
	const char *name;
	struct operation *operations;
	struct update *updates; /* of all operations */
	size_t count;           /* operations to measure with */
	size_t initial;         /* operations before them, that make the blocks as they were */
	size_t update_count;    /* of those that are measured */
	size_t line_count;      /* of those that are measured */
	uint32_t blocks;        /* distinct ones */
	void *bytes;            /* the file */
	size_t size;
};

/* 0, or -1 with a message on stderr. */
int stream_load(struct stream *stream, const char *name, const char *path);
void stream_free(struct stream *stream);

#endif
