/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a recording of block updates. */
#include "stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "nvjournal.h"

#define HEAD_BYTES 16u
#define OPERATION_BYTES 4u
#define UPDATE_BYTES 16u
#define MAX_OPERATIONS (1u << 20)
#define MAX_UPDATES (1u << 12)
/* The file system that is recorded has 1 GiB. */
#define MAX_BLOCK (1u << 18)

static int damaged(const char *path, const char *what)
{
	fprintf(stderr,
		"bench: %s is no sound recording (%s); make it again: daybook-bench updates\n",
		path, what);
	return -1;
}

static int map_file(struct stream *s, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st)) {
		fprintf(stderr, "bench: cannot read recording %s: %s\n", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -1;
	}
	s->size = (size_t)st.st_size;
	s->bytes = s->size ? mmap(NULL, s->size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0)
			   : MAP_FAILED;
	close(fd);
	if (s->bytes == MAP_FAILED) {
		s->bytes = NULL;
		return damaged(path, "empty");
	}
	return 0;
}

/* Block numbers to small ones: an open hash table. */
struct table {
	uint64_t *blocks;
	uint32_t *indexes;
	uint32_t slots, used;
};

static uint32_t index_of(struct table *t, uint64_t block)
{
	uint32_t at = (uint32_t)((block * UINT64_C(0x9e3779b97f4a7c15)) >> 40) & (t->slots - 1);

	while (t->indexes[at] && t->blocks[at] != block)
		at = (at + 1) & (t->slots - 1);
	if (!t->indexes[at]) {
		t->blocks[at] = block;
		t->indexes[at] = ++t->used;
	}
	return t->indexes[at] - 1;
}

/* Walks the file; with a NULL table only counts. 0, or -1 if it is cut off. */
static int walk(struct stream *s, uint32_t operations, struct table *table, size_t *updates)
{
	const uint8_t *at = (const uint8_t *)s->bytes + HEAD_BYTES;
	const uint8_t *end = (const uint8_t *)s->bytes + s->size;
	struct update *u = s->updates;

	*updates = 0;
	for (uint32_t n = 0; n < operations; n++) {
		struct operation o = {.updates = u};
		uint16_t count;

		if (end - at < (ptrdiff_t)OPERATION_BYTES)
			return -1;
		memcpy(&count, at + 2, 2);
		if (count > MAX_UPDATES)
			return -1;
		if (table && !at[0]) {
			if (s->initial != n)
				return -1;
			s->initial++;
		}
		at += OPERATION_BYTES;
		for (o.count = 0; o.count < count; o.count++) {
			struct update next;

			if (end - at < (ptrdiff_t)UPDATE_BYTES)
				return -1;
			memcpy(&next.block, at, 8);
			memcpy(&next.mask, at + 8, 8);
			at += UPDATE_BYTES;
			next.lines = at;
			next.line_count = (uint32_t)__builtin_popcountll(next.mask);
			if (next.block >= MAX_BLOCK ||
			    end - at < (ptrdiff_t)(NVJ_LINE_BYTES * next.line_count))
				return -1;
			at += NVJ_LINE_BYTES * next.line_count;
			o.lines += next.line_count;
			++*updates;
			if (table) {
				next.index = index_of(table, next.block);
				*u++ = next;
			}
		}
		if (table)
			s->operations[n] = o;
	}
	return at == end ? 0 : -1;
}

int stream_load(struct stream *s, const char *name, const char *path)
{
	struct table table = {.slots = 1u << 16};
	uint32_t operations;
	size_t updates;
	int error = 0;

	memset(s, 0, sizeof(*s));
	s->name = name;
	if (map_file(s, path))
		return -1;
	if (s->size < HEAD_BYTES || memcmp(s->bytes, "DBKBLKS1", 8))
		return damaged(path, "it begins otherwise");
	memcpy(&operations, (uint8_t *)s->bytes + 8, 4);
	memcpy(&s->blocks, (uint8_t *)s->bytes + 12, 4);
	if (operations > MAX_OPERATIONS || s->blocks > table.slots / 2)
		return damaged(path, "too large");
	if (walk(s, operations, NULL, &updates))
		return damaged(path, "cut off");
	s->operations = calloc(operations, sizeof(*s->operations));
	s->updates = calloc(updates + 1, sizeof(*s->updates));
	table.blocks = calloc(table.slots, sizeof(*table.blocks));
	table.indexes = calloc(table.slots, sizeof(*table.indexes));
	if (!s->operations || !s->updates || !table.blocks || !table.indexes)
		error = damaged(path, "no memory for it");
	else if (walk(s, operations, &table, &updates))
		error = damaged(path, "what makes the blocks as they were does not come first");
	else if (table.used != s->blocks || s->initial == operations)
		error = damaged(path, "it has another number of blocks, or no operation");
	free(table.blocks);
	free(table.indexes);
	if (error)
		return error;
	s->count = operations - s->initial;
	for (size_t n = 0; n < s->count; n++) {
		s->update_count += s->operations[s->initial + n].count;
		s->line_count += s->operations[s->initial + n].lines;
	}
	return 0;
}

void stream_free(struct stream *s)
{
	free(s->operations);
	free(s->updates);
	if (s->bytes)
		munmap(s->bytes, s->size);
	memset(s, 0, sizeof(*s));
}
