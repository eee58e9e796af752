/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Chooses a way to make stores persistent, by name. Also the way "none": for
 * DRAM, and for memory whose caches are saved, too, when power fails (eADR, a
 * battery).
 */
#include "persist.h"

static void none_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	(void)p;
	__builtin_memcpy(to, from, bytes);
}

static void none_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	(void)p;
	__atomic_store_n(to, value, __ATOMIC_RELAXED);
}

static void none_fence(const struct nvj_persistence *p)
{
	(void)p;
	/*
	 * The contents of caches survive, but not those of the store buffer. A
	 * full fence empties the store buffer. It also keeps the stores before
	 * and after it in order.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static const struct nvj_persistence none = {
	.name = "none", .write = none_write, .store64 = none_store64, .fence = none_fence};

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

const struct nvj_persistence *nvj_persistence(const char *name)
{
	for (unsigned i = 0; i < nvj_persist_way_count; i++) {
		const struct nvj_persist_way *way = &nvj_persist_ways[i];

		if ((!name || same(name, way->table.name)) && way->available())
			return &way->table;
	}
	/*
	 * Without a name this never returns "none": a caller without a choice
	 * must lose nothing on a processor whose caches we cannot write back.
	 */
	return name && same(name, none.name) ? &none : NULL;
}
