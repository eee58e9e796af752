/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct line *lines;
static uint64_t size, used; /* size is a power of two */

static struct line *entry(uint64_t number)
{
	uint64_t n = (number * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & (size - 1);

	while (lines[n].number && lines[n].number != number)
		n = (n + 1) & (size - 1);
	return &lines[n];
}

static void resize(uint64_t to)
{
	struct line *old = lines;
	uint64_t count = size;

	size = to;
	lines = calloc(size, sizeof(*lines));
	if (!lines) {
		fprintf(stderr, "transfers: no memory for %llu lines\n", (unsigned long long)size);
		exit(2);
	}
	for (uint64_t n = 0; n < count; n++)
		if (old[n].number)
			*entry(old[n].number) = old[n];
	free(old);
}

void cache_clear(void)
{
	free(lines);
	lines = NULL;
	size = used = 0;
	resize(UINT64_C(1) << 16);
}

void cache_count_again(void)
{
	/* The clocks begin again: no line is on its way since before. */
	for (uint64_t n = 0; n < size; n++)
		lines[n].fetches = lines[n].upgrades = lines[n].ready_ps = 0;
}

struct line *cache_line(uintptr_t address)
{
	struct line *line = entry(address / CACHE_LINE_BYTES);

	if (line->number)
		return line;
	if (2 * ++used > size) {
		resize(2 * size);
		line = entry(address / CACHE_LINE_BYTES);
	}
	*line = (struct line){
		.number = address / CACHE_LINE_BYTES, .owner = -1, .writer = -1, .to = -1};
	return line;
}

/* The line must come from somewhere else. */
static enum outcome bring(struct line *line, unsigned processor)
{
	line->to = (int8_t)processor;
	if (!line->copies || line->writer < 0)
		return FILL;
	line->fetches++;
	return FETCH;
}

enum outcome cache_access(struct line *line, unsigned processor, enum access access)
{
	uint64_t bit = UINT64_C(1) << processor;
	enum outcome outcome = HIT;

	if (!(line->copies & bit)) {
		outcome = bring(line, processor);
	} else if (access != LOAD && line->copies != bit) {
		line->upgrades++;
		line->to = (int8_t)processor;
		outcome = UPGRADE;
	}
	if (access == LOAD) {
		if (line->owner != (int8_t)processor)
			line->owner = -1;
		line->copies |= bit;
	} else {
		line->copies = bit;
		line->owner = line->writer = (int8_t)processor;
	}
	return outcome;
}

void cache_bypass(struct line *line)
{
	line->copies = 0;
	line->owner = line->writer = -1;
}

void cache_visit(void (*visit)(const struct line *line, void *argument), void *argument)
{
	for (uint64_t n = 0; n < size; n++)
		if (lines[n].fetches || lines[n].upgrades)
			visit(&lines[n], argument);
}
