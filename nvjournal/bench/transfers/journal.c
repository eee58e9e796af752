/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform, the disk and the persistence of the simulation, in the place of
 * those of libnvjournal. No block goes home while transfers are counted.
 */
#include "transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "callers.h"
#include "nvjournal_user.h"
#include "processors.h"

/* Of a clock's reading, and of a check of a loop that waits. */
#define CLOCK_PS UINT64_C(25000)
#define YIELD_PS UINT64_C(300000)

/*
 * The journal's memory lies at the same places in each journal, and no place is used
 * twice: a line would keep its copies, and so counts would depend on what was counted
 * before.
 */
#define ARENA_BYTES (UINT64_C(1) << 40)

static struct {
	char *base;
	size_t used;
	unsigned count; /* of what is allocated */
} arena;

static void *allocate(void *context, size_t bytes)
{
	size_t rounded = (bytes + NVJ_BLOCK_BYTES - 1) / NVJ_BLOCK_BYTES * NVJ_BLOCK_BYTES;
	void *memory;

	(void)context;
	if (!arena.base) {
		memory = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory == MAP_FAILED)
			return NULL;
		arena.base = memory;
	}
	if (rounded > ARENA_BYTES - arena.used)
		return NULL;
	memory = arena.base + arena.used;
	arena.used += rounded;
	arena.count++;
	parts_allocated(memory, bytes);
	return memory;
}

static void release(void *context, void *memory, size_t bytes)
{
	(void)context;
	parts_released(memory, bytes);
	/* The next one who gets these pages finds zeros. */
	madvise(memory, (bytes + NVJ_BLOCK_BYTES - 1) / NVJ_BLOCK_BYTES * NVJ_BLOCK_BYTES,
		MADV_DONTNEED);
	if (!--arena.count)
		arena.used = 0;
}

static void wait_at(void *context, const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	(void)context;
	processor_wait(word, expected, timeout_ns);
}

static void wake(void *context, const uint32_t *word)
{
	(void)context;
	processor_wake(word);
}

static unsigned cpu(void *context)
{
	(void)context;
	return processor_self();
}

static bool add_here(void *context, unsigned cpu_then, uint64_t *word, uint64_t value)
{
	(void)context;
	(void)cpu_then;
	processor_access(word, sizeof(*word), true);
	*word += value;
	return true;
}

static void yield(void *context)
{
	(void)context;
	processor_pass(YIELD_PS);
}

/* Each thread has a processor. */
static bool alone(void *context)
{
	(void)context;
	return true;
}

static uint64_t now_ns(void *context)
{
	(void)context;
	processor_pass(CLOCK_PS);
	return processor_now_ps() / 1000;
}

static int no_disk(void *context, uint64_t block, void *image)
{
	(void)context;
	(void)block;
	(void)image;
	return NVJ_EIO;
}

static int no_write(void *context, unsigned queue, struct nvj_write *write)
{
	(void)context;
	(void)queue;
	(void)write;
	return NVJ_EIO;
}

static struct nvj_write *no_finish(void *context, unsigned queue)
{
	(void)context;
	(void)queue;
	return NULL;
}

static int flush(void *context)
{
	(void)context;
	return 0;
}

void nvju_platform_init(struct nvju_platform *platform, struct nvju_disk *disk)
{
	*platform = (struct nvju_platform){
		.platform =
			{
				.context = platform,
				.allocate = allocate,
				.release = release,
				.wait = wait_at,
				.wake = wake,
				.cpu = cpu,
				.add_here = add_here,
				.yield = yield,
				.alone = callers_are_alone() ? alone : NULL,
				.now_ns = now_ns,
				.read = no_disk,
				.start_write = no_write,
				.finish_write = no_finish,
				.flush = flush,
			},
		.disk = disk,
	};
}

int nvju_disk_memory(struct nvju_disk **disk, uint64_t blocks, const struct nvju_disk_model *model)
{
	(void)blocks;
	(void)model;
	*disk = NULL;
	return 0;
}

void nvju_disk_close(struct nvju_disk *disk)
{
	(void)disk;
}

/* The same for each run, so that all counts are. */
void nvju_uuid(uint8_t uuid[16])
{
	memset(uuid, 1, 16);
}

static void write_lines(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	(void)p;
	processor_access(from, bytes, false);
	processor_bypass(to, bytes);
	memcpy(to, from, bytes);
}

static void store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	(void)p;
	processor_bypass(to, sizeof(*to));
	*to = value;
}

static void fence(const struct nvj_persistence *p)
{
	(void)p;
	processor_fence();
}

static const struct nvj_persistence bypassing = {
	.name = "simulated", .write = write_lines, .store64 = store64, .fence = fence};

const struct nvj_persistence *simulated_persistence(void)
{
	return &bypassing;
}

const struct nvj_persistence *nvj_persistence(const char *name)
{
	(void)name;
	return &bypassing;
}

/* What the core calls in a build with NVJ_TRANSFERS. */
void nvj_transfers_relax(void);
void nvj_transfers_will_write(const void *address);

void nvj_transfers_relax(void)
{
	processor_pass(15000);
}

void nvj_transfers_will_write(const void *address)
{
	processor_prefetch(address);
}
