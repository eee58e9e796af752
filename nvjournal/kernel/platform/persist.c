// SPDX-License-Identifier: GPL-2.0
/*
 * Stores to a region, with the engine's best way for this processor, and
 * counters of them. Each processor has its own counters, so counting costs one
 * instruction on its own cache line.
 */
#include <linux/cpumask.h>
#include <linux/percpu.h>

#include "internal.h"

static const struct nvjk_persist *persist_of(const struct nvj_persistence *p)
{
	return container_of(p, struct nvjk_persist, table);
}

static void write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	const struct nvjk_persist *persist = persist_of(p);

	persist->way->write(persist->way, to, from, bytes);
	this_cpu_inc(persist->counts->writes);
	this_cpu_add(persist->counts->lines, bytes / NVJ_LINE_BYTES);
}

static void store64(const struct nvj_persistence *p, u64 *to, u64 value)
{
	const struct nvjk_persist *persist = persist_of(p);

	persist->way->store64(persist->way, to, value);
	this_cpu_inc(persist->counts->writes);
	this_cpu_inc(persist->counts->lines);
}

static void fence(const struct nvj_persistence *p)
{
	const struct nvjk_persist *persist = persist_of(p);

	persist->way->fence(persist->way);
	this_cpu_inc(persist->counts->fences);
}

int nvjk_persist_init(struct nvjk_persist *persist)
{
	persist->way = nvj_persistence(NULL);
	if (!persist->way)
		return -EOPNOTSUPP;
	persist->counts = alloc_percpu(struct nvjk_persist_counts);
	if (!persist->counts)
		return -ENOMEM;
	persist->table = (struct nvj_persistence){
		.name = persist->way->name,
		.write = write,
		.store64 = store64,
		.fence = fence,
	};
	return 0;
}

void nvjk_persist_exit(struct nvjk_persist *persist)
{
	free_percpu(persist->counts);
}

void nvjk_persist_sum(const struct nvjk_persist *persist, struct nvjk_persist_counts *sum)
{
	int cpu;

	*sum = (struct nvjk_persist_counts){};
	for_each_possible_cpu(cpu)
	{
		const struct nvjk_persist_counts *one = per_cpu_ptr(persist->counts, cpu);

		sum->writes += READ_ONCE(one->writes);
		sum->lines += READ_ONCE(one->lines);
		sum->fences += READ_ONCE(one->fences);
	}
}
