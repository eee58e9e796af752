/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"
#include "schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void world_wrong(struct world *w, const char *format, ...)
{
	va_list arguments;

	if (w->wrong[0] != 0)
		return;
	va_start(arguments, format);
	vsnprintf(w->wrong, sizeof(w->wrong), format, arguments);
	va_end(arguments);
}

/* --- The region ---------------------------------------------------------- */

static bool outside(struct world *w, const void *to, size_t bytes, size_t multiple)
{
	size_t offset = (size_t)((uintptr_t)to - (uintptr_t)w->region);

	if (offset < w->region_bytes && bytes <= w->region_bytes - offset &&
	    offset % multiple == 0 && bytes % multiple == 0)
		return false;
	world_wrong(w, "a store of %zu bytes at offset %zu of a region of %zu", bytes, offset,
		    w->region_bytes);
	return true;
}

static void region_write(const struct nvj_persistence *p, void *to, const void *from, size_t bytes)
{
	struct world *w = p->context;

	schedule_point();
	if (outside(w, to, bytes, NVJ_LINE_BYTES))
		return;
	trace_add(&w->trace, TRACE_WRITE, schedule_self(), (size_t)((uint8_t *)to - w->region), 0,
		  from, bytes);
	if (w->under != NULL)
		w->under->write(w->under, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

static void region_store64(const struct nvj_persistence *p, uint64_t *to, uint64_t value)
{
	struct world *w = p->context;

	schedule_point();
	if (outside(w, to, 8, 8))
		return;
	trace_add(&w->trace, TRACE_STORE64, schedule_self(), (size_t)((uint8_t *)to - w->region), 0,
		  &value, 8);
	if (w->under != NULL)
		w->under->store64(w->under, to, value);
	else
		__atomic_store_n(to, value, __ATOMIC_RELEASE);
}

static void region_fence(const struct nvj_persistence *p)
{
	struct world *w = p->context;

	schedule_point();
	if (w->under != NULL)
		w->under->fence(w->under);
	else
		trace_add(&w->trace, TRACE_FENCE, schedule_self(), 0, 0, NULL, 0);
}

/* --- The disk ------------------------------------------------------------ */

static int disk_read(void *context, uint64_t block, void *image)
{
	struct world *w = context;

	schedule_point();
	w->reads++;
	if (block >= w->blocks) {
		if (!w->any_block)
			world_wrong(w, "a read of block %llu", (unsigned long long)block);
		return NVJ_EIO;
	}
	memcpy(image, w->disk + block * NVJ_BLOCK_BYTES, NVJ_BLOCK_BYTES);
	return 0;
}

static int disk_start(void *context, unsigned queue, struct nvj_write *write)
{
	struct world *w = context;
	unsigned n;

	schedule_point();
	if (write->block >= w->blocks || queue >= NVJ_MAX_QUEUES) {
		if (!w->any_block || queue >= NVJ_MAX_QUEUES)
			world_wrong(w, "a write of block %llu on queue %u",
				    (unsigned long long)write->block, queue);
		return NVJ_EIO;
	}
	n = w->queue[queue].count;
	if (n == NVJ_QUEUE_DEPTH) {
		world_wrong(w, "more than %u writes on queue %u", NVJ_QUEUE_DEPTH, queue);
		return NVJ_EIO;
	}
	for (unsigned q = 0; q < NVJ_MAX_QUEUES; q++)
		for (unsigned i = 0; i < w->queue[q].count; i++)
			if (w->queue[q].write[i]->block == write->block)
				world_wrong(w, "two writes of block %llu at the same time",
					    (unsigned long long)write->block);
	if (n == 0)
		w->queue[queue].owner = schedule_self();
	else if (w->queue[queue].owner != schedule_self()) {
		/* Each would finish writes of the other, and the engine would crash. */
		world_wrong(w, "two threads have writes on queue %u", queue);
		printf("VIOLATION: %s\n", w->wrong);
		fflush(stdout);
		_exit(3);
	}
	w->queue[queue].write[n] = write;
	w->queue[queue].id[n] = w->write_ids;
	w->queue[queue].started[n] = w->trace.count;
	w->queue[queue].count++;
	write->error = 0;
	trace_add(&w->trace, TRACE_DISK_START, schedule_self(), write->block, w->write_ids++,
		  write->image, NVJ_BLOCK_BYTES);
	return 0;
}

static struct nvj_write *disk_finish(void *context, unsigned queue)
{
	struct world *w = context;
	struct nvj_write *write;
	unsigned count, n;
	uint32_t id;

	schedule_point();
	count = w->queue[queue].count;
	if (count == 0) {
		world_wrong(w, "a wait for a write on queue %u, which has none", queue);
		return NULL;
	}
	n = random_below(&w->random, count);
	write = w->queue[queue].write[n];
	id = w->queue[queue].id[n];
	if (memcmp(w->trace.event[w->queue[queue].started[n]].data, write->image,
		   NVJ_BLOCK_BYTES) != 0)
		world_wrong(w, "the image of block %llu changed while it was written",
			    (unsigned long long)write->block);
	w->queue[queue].write[n] = w->queue[queue].write[count - 1];
	w->queue[queue].id[n] = w->queue[queue].id[count - 1];
	w->queue[queue].started[n] = w->queue[queue].started[count - 1];
	w->queue[queue].count--;
	if (w->writes_until_error != 0 && --w->writes_until_error == 0) {
		w->writes_until_error = 1; /* and each after it */
		write->error = NVJ_EIO;
		/* It may be there all the same. */
		if (random_once_in(&w->random, 2)) {
			trace_add(&w->trace, TRACE_DISK_FAILED, schedule_self(), write->block, id,
				  NULL, 0);
			return write;
		}
	}
	memcpy(w->disk + write->block * NVJ_BLOCK_BYTES, write->image, NVJ_BLOCK_BYTES);
	trace_add(&w->trace, TRACE_DISK_END, schedule_self(), write->block, id, NULL, 0);
	return write;
}

static int disk_flush(void *context)
{
	struct world *w = context;

	schedule_point();
	trace_add(&w->trace, TRACE_DISK_FLUSH, schedule_self(), 0, 0, NULL, 0);
	return 0;
}

void world_write(struct world *w, uint64_t block, const void *image)
{
	uint32_t id = w->write_ids++;

	schedule_point();
	for (unsigned q = 0; q < NVJ_MAX_QUEUES; q++)
		for (unsigned i = 0; i < w->queue[q].count; i++)
			if (w->queue[q].write[i]->block == block)
				world_wrong(w,
					    "block %llu, now the caller's, is being written home",
					    (unsigned long long)block);
	trace_add(&w->trace, TRACE_DISK_START, schedule_self(), block, id, image, NVJ_BLOCK_BYTES);
	schedule_point();
	memcpy(w->disk + block * NVJ_BLOCK_BYTES, image, NVJ_BLOCK_BYTES);
	trace_add(&w->trace, TRACE_DISK_END, schedule_self(), block, id, NULL, 0);
	disk_flush(w);
}

/* --- The rest of the platform -------------------------------------------- */

static void *allocate_filled(struct world *w, size_t bytes, int with)
{
	size_t whole = (bytes + 63) / 64 * 64;
	void *memory;

	schedule_point();
	if (w->allocations_until_error != 0 && --w->allocations_until_error == 0)
		return NULL;
	memory = aligned_alloc(64, whole ? whole : 64);
	if (memory == NULL)
		abort();
	memset(memory, with, whole);
	w->allocated++;
	return memory;
}

static void *allocate(void *context, size_t bytes)
{
	return allocate_filled(context, bytes, 0);
}

/* So that bytes which the engine uses before it has stored them are noticed. */
static void *allocate_block(void *context)
{
	return allocate_filled(context, NVJ_BLOCK_BYTES, 0xdb);
}

static void release(void *context, void *memory, size_t bytes)
{
	struct world *w = context;

	if (memory == NULL)
		return;
	/* So that whoever uses it afterwards is noticed. */
	memset(memory, 0xdb, bytes);
	w->allocated--;
	free(memory);
}

static void wait_at(void *context, const uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	(void)context;
	schedule_wait(word, expected, timeout_ns);
}

static void wake_at(void *context, const uint32_t *word)
{
	(void)context;
	schedule_wake(word);
}

static unsigned cpu(void *context)
{
	(void)context;
	return schedule_self();
}

/* Each thread has a processor of its own, and is moved away from it now and then. */
static bool add_here(void *context, unsigned cpu, uint64_t *word, uint64_t value)
{
	struct world *w = context;

	(void)cpu;
	schedule_point();
	if (random_once_in(&w->moves, 8))
		return false;
	*word += value;
	return true;
}

static void yield(void *context)
{
	(void)context;
	schedule_point();
}

/* A thread that waits without sleeping is interrupted now and then. */
static bool alone(void *context)
{
	struct world *w = context;

	return !random_once_in(&w->moves, 16);
}

static uint64_t now_ns(void *context)
{
	(void)context;
	return schedule_now_ns();
}

static void aborted(void *context, int error, uint64_t block)
{
	struct world *w = context;

	(void)block;
	if (w->aborted != 0)
		world_wrong(w, "the abort was told twice");
	w->aborted = error;
}

void world_begin(struct world *w, uint8_t *region, size_t region_bytes, uint8_t *disk,
		 uint32_t blocks, uint64_t seed)
{
	memset(w, 0, sizeof(*w));
	w->region = region;
	w->region_bytes = region_bytes;
	w->disk = disk;
	w->blocks = blocks;
	w->random = random_from(seed);
	w->moves = random_from(~seed);
	w->persistence = (struct nvj_persistence){.name = "recorded",
						  .write = region_write,
						  .store64 = region_store64,
						  .fence = region_fence,
						  .context = w};
	w->platform = (struct nvj_platform){
		.context = w,
		.allocate = allocate,
		.allocate_block = allocate_block,
		.release = release,
		.wait = wait_at,
		.wake = wake_at,
		.cpu = cpu,
		/* Kernels have neither. */
		.add_here = seed % 4 ? add_here : NULL,
		.yield = seed % 4 ? yield : NULL,
		.alone = seed % 2 ? alone : NULL,
		.now_ns = now_ns,
		.read = disk_read,
		.start_write = disk_start,
		.finish_write = disk_finish,
		.flush = disk_flush,
		.aborted = aborted,
	};
	w->nvj_region = (struct nvj_region){
		.base = region, .size_bytes = region_bytes, .persistence = &w->persistence};
}

void world_end(struct world *w)
{
	trace_free(&w->trace);
}
