/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of anonymous memory, and emulated memory that is slower than DRAM.
 * Each written line and each fence can take longer, and all threads together
 * can have a limited bandwidth. The bandwidth is one queue. A write goes to the
 * end of the queue without waiting. The fence waits until the queue has
 * processed the thread's writes, as a fence of real memory does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "clock.h"
#include "error.h"
#include "region.h"

/* When the memory will have accepted what this thread wrote. */
static _Thread_local uint64_t mine_until_ns;

static void take_turn(struct nvju_region *region, size_t bytes)
{
	uint64_t now = nvju_fast_ns();
	uint64_t takes = (uint64_t)((double)bytes * region->ns_per_byte);
	uint64_t free_at = __atomic_load_n(&region->free_at_ns, __ATOMIC_RELAXED);
	uint64_t until;

	do
		until = (free_at > now ? free_at : now) + takes;
	while (!__atomic_compare_exchange_n(&region->free_at_ns, &free_at, until, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	mine_until_ns = until;
}

static void slow(struct nvju_region *region, size_t bytes)
{
	uint64_t lines = (bytes + NVJ_LINE_BYTES - 1) / NVJ_LINE_BYTES;

	if (region->ns_per_byte > 0)
		take_turn(region, lines * NVJ_LINE_BYTES);
	if (region->model.line_ns)
		nvju_spin_until(nvju_fast_ns() + lines * region->model.line_ns);
}

static void dram_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	struct nvju_region *region = p->context;

	region->under->write(region->under, to, from, bytes);
	slow(region, bytes);
}

static void dram_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	struct nvju_region *region = p->context;

	region->under->store64(region->under, to, value);
	slow(region, sizeof(*to));
}

static void dram_fence(const struct nvj_persistence *p)
{
	struct nvju_region *region = p->context;
	uint64_t until = nvju_fast_ns() + region->model.fence_ns;

	region->under->fence(region->under);
	nvju_spin_until(until > mine_until_ns ? until : mine_until_ns);
	mine_until_ns = 0;
}

int nvju_region_dram(struct nvju_region **result, uint64_t size_bytes,
		     const struct nvju_dram *model)
{
	struct nvju_region *region = calloc(1, sizeof(*region));
	void *base;

	*result = NULL;
	if (!region)
		return nvju_fail(NVJ_ENOMEM, "cannot make a region in memory: no memory");
	region->fd = region->claim_fd = -1;
	if (model)
		region->model = *model;
	region->under = nvj_persistence(region->model.persistence);
	if (!region->under) {
		const char *name = region->model.persistence;

		free(region);
		if (!name)
			return nvju_fail(NVJ_EINVAL,
					 "cannot make a region in memory: this processor has no "
					 "instruction that writes a line of its caches to memory; "
					 "persistence \"none\" does without");
		return nvju_fail(NVJ_EINVAL,
				 "cannot make a region in memory: persistence \"%s\" is not known, "
				 "or this processor has it not; without a name it is the best one",
				 name);
	}
	base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED) {
		free(region);
		return nvju_fail(NVJ_ENOMEM,
				 "cannot make a region of %" PRIu64 " bytes in memory: there is "
				 "none, or it is no size",
				 size_bytes);
	}
	region->region = (struct nvj_region){
		.base = base,
		.size_bytes = size_bytes,
		.persistence = region->under,
	};
	if (region->model.fence_ns || region->model.line_ns || region->model.bytes_per_second) {
		nvju_fast_clock_init();
		if (region->model.bytes_per_second)
			region->ns_per_byte = 1e9 / (double)region->model.bytes_per_second;
		region->persistence = (struct nvj_persistence){
			.name = region->under->name,
			.write = dram_write,
			.store64 = dram_store64,
			.fence = dram_fence,
			.context = region,
		};
		region->region.persistence = &region->persistence;
	}
	snprintf(region->how, sizeof(region->how), "DRAM, %s", region->under->name);
	*result = region;
	return 0;
}
