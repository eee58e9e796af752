/* SPDX-License-Identifier: Apache-2.0 */
/* Persistence that counts. */
#include "count.h"

static void add(uint64_t *counter, uint64_t value)
{
	__atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
}

static void counted_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	struct counted *c = p->context;

	add(&c->bytes, bytes);
	add(&c->flushes, (bytes + NVJ_LINE_BYTES - 1) / NVJ_LINE_BYTES);
	c->inner->write(c->inner, to, from, bytes);
}

/* A store of 8 bytes makes a line be written. */
static void counted_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	struct counted *c = p->context;

	add(&c->bytes, sizeof(value));
	add(&c->flushes, 1);
	c->inner->store64(c->inner, to, value);
}

static void counted_fence(const struct nvj_persistence *p)
{
	struct counted *c = p->context;

	add(&c->fences, 1);
	c->inner->fence(c->inner);
}

void counted_init(struct counted *c, const struct nvj_persistence *inner)
{
	*c = (struct counted){
		.table = {.name = inner->name,
			  .write = counted_write,
			  .store64 = counted_store64,
			  .fence = counted_fence,
			  .context = c},
		.inner = inner,
	};
}
