/* SPDX-License-Identifier: Apache-2.0 */
#include "trace.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES (1u << 20)

struct trace_memory {
	struct trace_memory *next;
	size_t used;
	_Alignas(64) uint8_t bytes[MEMORY_BYTES];
};

static void *keep(struct trace *t, const void *data, size_t bytes)
{
	struct trace_memory *m = t->memory;
	void *kept;

	if (bytes > MEMORY_BYTES)
		abort();
	if (m == NULL || m->used + bytes > MEMORY_BYTES) {
		m = aligned_alloc(64, sizeof(*m));
		if (m == NULL)
			abort();
		m->next = t->memory;
		m->used = 0;
		t->memory = m;
	}
	kept = m->bytes + m->used;
	memcpy(kept, data, bytes);
	m->used += (bytes + 63) / 64 * 64;
	return kept;
}

void trace_add(struct trace *t, enum trace_kind kind, unsigned thread, uint64_t where, uint32_t id,
	       const void *data, size_t bytes)
{
	struct trace_event *e;

	if (t->count == t->room) {
		t->room = t->room ? 2 * t->room : 1024;
		t->event = realloc(t->event, t->room * sizeof(*t->event));
		if (t->event == NULL)
			abort();
	}
	e = &t->event[t->count++];
	*e = (struct trace_event){.kind = (uint8_t)kind,
				  .thread = (uint8_t)thread,
				  .bytes = (uint32_t)bytes,
				  .id = id,
				  .where = where};
	if (data != NULL)
		e->data = keep(t, data, bytes);
}

void trace_clear(struct trace *t)
{
	while (t->memory != NULL && t->memory->next != NULL) {
		struct trace_memory *m = t->memory;

		t->memory = m->next;
		free(m);
	}
	if (t->memory != NULL)
		t->memory->used = 0;
	t->count = 0;
}

void trace_free(struct trace *t)
{
	trace_clear(t);
	free(t->memory);
	free(t->event);
	*t = (struct trace){0};
}

const char *trace_name(unsigned kind)
{
	static const char *const names[] = {
		"write",      "store64",     "fence",       "sync start", "sync end",
		"disk start", "disk end",    "disk failed", "disk flush", "committed",
		"direct",     "direct done", "formatted",   "opened",     "before commit",
	};

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}
