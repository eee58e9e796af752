/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The counters of the journal. They are exact when no operation is in progress,
 * and nearly exact otherwise.
 */
#include "journal.h"

/* What the lock protects, from its address. */
static enum nvj_lock_kind kind_of(const struct nvj *j, const struct nvj_lock *lock)
{
	uintptr_t at = (uintptr_t)lock;

	if (lock == &j->credit_lock || lock == &j->brought_lock)
		return NVJ_LOCK_OTHER;
	for (unsigned i = 0; i < j->partitions; i++) {
		const struct nvj_partition *p = &j->partition[i];
		uintptr_t first = (uintptr_t)p->buckets;

		if (lock == &p->list_lock)
			return NVJ_LOCK_LISTS;
		if (at >= first && at - first < sizeof(*p->buckets) << (64 - p->bucket_shift))
			return NVJ_LOCK_BUCKET;
	}
	return NVJ_LOCK_BLOCK;
}

void nvj_lock_waited(const struct nvj_platform *platform, const struct nvj_lock *lock, uint64_t ns)
{
	const struct nvj *j = (const void *)((uintptr_t)platform - offsetof(struct nvj, platform));
	struct nvj_cpu *c = &j->cpu[platform->cpu(platform->context) % NVJ_CPUS];
	enum nvj_lock_kind kind = kind_of(j, lock);

	nvj_count(&c->lock_waits[kind], 1);
	nvj_count(&c->lock_wait_ns[kind], ns);
}

#ifdef NVJ_LOCK_TIMES
uint64_t nvj_ticks_ns(const struct nvj *j, uint64_t ticks)
{
	uint64_t ns = j->platform.now_ns(j->platform.context) - j->opened_ns;
	uint64_t passed = nvj_ticks() - j->opened_ticks;
	uint64_t scale;

	/* With a longer time the products would not fit. */
	while (ns >> 40 || passed >> 40) {
		ns >>= 1;
		passed >>= 1;
	}
	scale = passed ? (ns << 20) / passed : 0;
	return (ticks >> 20) * scale + ((ticks & ((1u << 20) - 1)) * scale >> 20);
}

void nvj_lock_held(const struct nvj_platform *platform, const struct nvj_lock *lock, uint64_t ticks)
{
	const struct nvj *j = (const void *)((uintptr_t)platform - offsetof(struct nvj, platform));
	struct nvj_cpu *c = &j->cpu[platform->cpu(platform->context) % NVJ_CPUS];
	enum nvj_lock_kind kind = kind_of(j, lock);

	nvj_count(&c->lock_holds[kind], 1);
	nvj_count(&c->lock_hold_ticks[kind], ticks);
	nvj_raise_sc(&c->lock_longest_ticks[kind], ticks);
}

static void add_holds(struct nvj_statistics *s, const struct nvj *j)
{
	for (unsigned kind = 0; kind < NVJ_LOCK_KINDS; kind++) {
		uint64_t ticks = 0, longest = 0;

		for (unsigned i = 0; i < NVJ_CPUS; i++) {
			struct nvj_cpu *c = &j->cpu[i];
			uint64_t here = nvj_exchange_sc(&c->lock_longest_ticks[kind], 0);

			s->lock_holds[kind] += nvj_load(&c->lock_holds[kind]);
			ticks += nvj_load(&c->lock_hold_ticks[kind]);
			longest = here > longest ? here : longest;
		}
		s->lock_hold_ns[kind] = nvj_ticks_ns(j, ticks);
		s->lock_longest_ns[kind] = nvj_ticks_ns(j, longest);
	}
}
#else
static void add_holds(struct nvj_statistics *s, const struct nvj *j)
{
	(void)s;
	(void)j;
}
#endif

static void add_cpu(struct nvj_statistics *s, const struct nvj_cpu *c)
{
	for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
		s->handles += (uint32_t)nvj_load(&c->started[slot]);
	s->handles += nvj_load(&c->started_4g) << 32;
	s->handles -= nvj_load(&c->not_started);
	s->data_records += nvj_load(&c->data_records);
	s->revokes += nvj_load(&c->revokes);
	s->commits_waited += nvj_load(&c->commits_waited);
	for (unsigned kind = 0; kind < NVJ_LOCK_KINDS; kind++) {
		s->lock_waits[kind] += nvj_load(&c->lock_waits[kind]);
		s->lock_wait_ns[kind] += nvj_load(&c->lock_wait_ns[kind]);
	}
}

/*
 * What happens to a block is counted in its entry, which is written under its
 * lock anyway. An atomic addition would wait for all earlier stores.
 */
static void add_block(struct nvj_statistics *s, const struct nvj_block *b)
{
	s->records += nvj_load(&b->records);
	s->fences += nvj_load(&b->batches);
	s->zero_lines += nvj_load(&b->zero_lines);
	s->frozen += nvj_load(&b->freezes);
}

static void add_partition(struct nvj_statistics *s, const struct nvj *j, struct nvj_partition *p)
{
	nvj_lock(&p->list_lock, &j->platform);
	s->records += nvj_load(&p->records);
	s->fences += nvj_load(&p->batches);
	s->zero_lines += nvj_load(&p->zero_lines);
	s->frozen += nvj_load(&p->freezes);
	for (const struct nvj_slab *slab = p->block_slabs; slab; slab = slab->next)
		for (unsigned i = 0; i < NVJ_BLOCKS_OF_SLAB; i++)
			add_block(s, &slab->blocks[i]);
	/* This hold is not counted: no operation needed it. */
	nvj_lock_release(&p->list_lock, &j->platform);
}

void nvj_statistics(const struct nvj *j, struct nvj_statistics *s)
{
	uint64_t tail = nvj_load_sc(&j->tail);
	const uint64_t *lows = j->lows + (tail & (j->geometry.commits - 1)) * j->partitions;

	*s = (struct nvj_statistics){
		.transactions = nvj_load(&j->transactions),
		.merged = nvj_load(&j->merged),
		.fences = nvj_load(&j->fences),
		.start_waits = nvj_load(&j->start_waits),
		.start_wait_ns = nvj_load(&j->start_wait_ns),
		.checkpoints = nvj_load(&j->checkpoints),
		.blocks_home = nvj_load(&j->blocks_home),
		.running_tid = nvj_load(&j->running),
		.committed_tid = nvj_load(&j->committed),
		.tail_tid = tail,
		.ring_lines = j->geometry.ring_lines,
		.partitions = j->partitions,
	};
	/* One for each seal, and one for each group that is sealed together. */
	s->fences += 2 * s->transactions - s->merged;
	for (unsigned i = 0; i < NVJ_CPUS; i++)
		add_cpu(s, &j->cpu[i]);
	add_holds(s, j);
	for (unsigned i = 0; i < j->partitions; i++) {
		uint64_t head = nvj_load(&j->partition[i].head);
		uint64_t low = nvj_load(&lows[i]);

		add_partition(s, j, &j->partition[i]);
		s->record_lines += head - j->first_line[i];
		if (head - low > s->used_lines)
			s->used_lines = head - low;
	}
}
