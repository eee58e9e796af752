/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for the lines that move: by the allocation, and by the field in it. This
 * file knows the structures of the core.
 */
#include "transfers.h"

#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "journal.h"

struct allocation {
	uintptr_t at;
	size_t bytes;
};

#define MOST_ALLOCATIONS (1u << 20)
#define MOST_PARTS 64u

static struct allocation *allocations;
static unsigned count;
static const struct nvj *journal;
static const struct nvj_region *region;
static struct part parts[MOST_PARTS + 1];

void parts_allocated(void *memory, size_t bytes)
{
	if (!allocations)
		allocations = calloc(MOST_ALLOCATIONS, sizeof(*allocations));
	if (bytes == sizeof(struct nvj))
		journal = memory;
	if (allocations && count < MOST_ALLOCATIONS)
		allocations[count++] = (struct allocation){(uintptr_t)memory, bytes};
}

void parts_released(void *memory, size_t bytes)
{
	(void)bytes;
	for (unsigned n = count; n-- > 0;)
		if (allocations[n].at == (uintptr_t)memory) {
			allocations[n] = allocations[--count];
			break;
		}
	if (memory == journal)
		journal = NULL;
}

void parts_set_region(const struct nvj_region *r)
{
	region = r;
}

struct field {
	size_t offset;
	const char *name;
};

/* The fields at the start of a cache line. The first is at 0. */
static const struct field journal_fields[] = {
	{0, "fixed at open"},
	{offsetof(struct nvj, running), "running transaction"},
	{offsetof(struct nvj, closing), "closing transaction"},
	{offsetof(struct nvj, hold), "hold, bells of handles"},
	{offsetof(struct nvj, sealed), "sealed and committed"},
	{offsetof(struct nvj, leading), "leader, bell of followers"},
	{offsetof(struct nvj, record), "commit record in memory"},
	{offsetof(struct nvj, tail), "checkpoint"},
	{offsetof(struct nvj, later_lines), "changes that wait, handle of the leader"},
	{offsetof(struct nvj, credits), "credits"},
	{offsetof(struct nvj, fences), "statistics"},
	{sizeof(struct nvj), NULL},
};

static const struct field partition_fields[] = {
	{0, "head of a ring"},
	{offsetof(struct nvj_partition, lines), "bounds of a ring"},
	{offsetof(struct nvj_partition, last_check), "last_check"},
	{offsetof(struct nvj_partition, sequence), "sequence of evicted blocks"},
	{offsetof(struct nvj_partition, list_lock), "lock and lists of a partition"},
	{offsetof(struct nvj_partition, claimed), "round of a partition"},
	{sizeof(struct nvj_partition), NULL},
};

static const char *field_at(const struct field *fields, size_t offset)
{
	const char *name = fields->name;

	for (; fields->name && fields->offset <= offset; fields++)
		name = fields->name;
	return name;
}

static const char *slab_name(const struct nvj_slab *slab)
{
	return slab->images ? "entries of images" : "entries of blocks";
}

static const char *in_allocation(const struct allocation *a, uintptr_t address)
{
	const void *memory = (const void *)a->at;

	if (memory == journal)
		return field_at(journal_fields, address - a->at);
	if (memory == journal->partition)
		return field_at(partition_fields, (address - a->at) % sizeof(struct nvj_partition));
	if (memory == journal->cpu)
		return "counts of handles";
	if (memory == journal->lows)
		return "lows";
	for (unsigned n = 0; n < journal->partitions; n++) {
		const struct nvj_partition *p = &journal->partition[n];

		if (memory == p->flags)
			return "flags of records";
		if (memory == p->buckets)
			return "hash buckets";
	}
	return a->bytes == NVJ_BLOCK_BYTES ? "images of blocks" : slab_name(memory);
}

static const char *name_of(uintptr_t address)
{
	if (region && address >= (uintptr_t)region->base &&
	    address < (uintptr_t)region->base + region->size_bytes)
		return "region";
	for (unsigned n = 0; journal && n < count; n++)
		if (address >= allocations[n].at &&
		    address < allocations[n].at + allocations[n].bytes)
			return in_allocation(&allocations[n], address);
	return "lock and head of the one lock";
}

static void add(const struct line *line, void *argument)
{
	const char *name = name_of(line->number * CACHE_LINE_BYTES);
	struct part *p = parts;

	(void)argument;
	while (p->name && strcmp(p->name, name))
		p++;
	p->name = name;
	p->fetches += line->fetches;
	p->upgrades += line->upgrades;
}

static int by_transfers(const void *a, const void *b)
{
	const struct part *x = a, *y = b;
	uint64_t of_x = x->fetches + x->upgrades, of_y = y->fetches + y->upgrades;

	return of_x < of_y ? 1 : of_x > of_y ? -1 : strcmp(x->name, y->name);
}

const struct part *parts_count(void)
{
	unsigned used = 0;

	memset(parts, 0, sizeof(parts));
	cache_visit(add, NULL);
	while (parts[used].name)
		used++;
	qsort(parts, used, sizeof(*parts), by_transfers);
	return parts;
}
