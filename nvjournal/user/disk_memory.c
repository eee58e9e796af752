/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk in memory. Tests make it fail, tear its writes and lose its cache.
 * Measurements give it channels and a time for each write. A write takes effect
 * when it ends, and not when it starts. So a test detects an image that is
 * changed or freed too early.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "clock.h"
#include "disk.h"
#include "error.h"

#define SECTOR 512u
#define MAX_CHANNELS 64u

struct queued {
	struct nvj_write *write;
	uint64_t ends_ns;
};

struct memory_disk {
	struct nvju_disk disk;
	struct nvju_disk_model model;
	uint64_t blocks;
	uint8_t *bytes;
	uint8_t *stable; /* if cached: the content at the last flush */
	uint8_t *dirty;  /* if cached: one byte for each block; set if it differs from stable */
	pthread_mutex_t lock;
	struct nvju_disk_faults faults;
	uint64_t random;
	uint64_t channel_free_ns[MAX_CHANNELS];
	struct {
		struct queued queued[NVJ_QUEUE_DEPTH];
		unsigned used;
	} queues[NVJ_MAX_QUEUES];
};

static uint64_t next_random(uint64_t *state)
{
	/* xorshift64* */
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(0x2545f4914f6cdd1d);
}

/*
 * Says whether this operation fails. left: 1 is now, 0 never. The caller holds
 * the lock.
 */
static bool fails(struct memory_disk *memory, uint64_t *left)
{
	if (*left == 0)
		return false;
	if (*left > 1) {
		(*left)--;
		return false;
	}
	if (!memory->faults.forever)
		*left = 0;
	return true;
}

static bool lock_and_fail(struct memory_disk *memory, uint64_t *left)
{
	bool failed;

	pthread_mutex_lock(&memory->lock);
	failed = fails(memory, left);
	pthread_mutex_unlock(&memory->lock);
	return failed;
}

static void sleep_until(uint64_t until_ns)
{
	uint64_t now = nvju_monotonic_ns();

	while (now < until_ns) {
		/*
		 * A sleep ends 60 us late, so shorter times are waited for
		 * busily.
		 */
		if (until_ns - now > 100000) {
			uint64_t ns = until_ns - now - 60000;
			struct timespec pause = {
				.tv_sec = (time_t)(ns / 1000000000u),
				.tv_nsec = (long)(ns % 1000000000u),
			};

			nanosleep(&pause, NULL);
		}
		now = nvju_monotonic_ns();
	}
}

static int out_of_range(const struct memory_disk *memory, uint64_t block)
{
	return nvju_fail(NVJ_EIO,
			 "cannot reach block %" PRIu64 " of the memory disk: it has %" PRIu64,
			 block, memory->blocks);
}

static int memory_read(struct nvju_disk *disk, uint64_t block, void *image)
{
	struct memory_disk *memory = (struct memory_disk *)disk;

	if (block >= memory->blocks)
		return out_of_range(memory, block);
	if (lock_and_fail(memory, &memory->faults.next_read))
		return nvju_fail(NVJ_EIO, "cannot read block %" PRIu64 ": the test says so", block);
	memcpy(image, memory->bytes + block * NVJ_BLOCK_BYTES, NVJ_BLOCK_BYTES);
	return 0;
}

/* The channel that is free first takes the write. */
static uint64_t time_of_write(struct memory_disk *memory)
{
	uint64_t now = nvju_monotonic_ns();
	unsigned n, best = 0;

	if (!memory->model.channels)
		return 0;
	pthread_mutex_lock(&memory->lock);
	for (n = 1; n < memory->model.channels; n++)
		if (memory->channel_free_ns[n] < memory->channel_free_ns[best])
			best = n;
	if (memory->channel_free_ns[best] > now)
		now = memory->channel_free_ns[best];
	now += memory->model.write_ns;
	memory->channel_free_ns[best] = now;
	pthread_mutex_unlock(&memory->lock);
	return now;
}

static int memory_start_write(struct nvju_disk *disk, unsigned queue, struct nvj_write *write)
{
	struct memory_disk *memory = (struct memory_disk *)disk;
	struct queued *queued;

	if (write->block >= memory->blocks)
		return out_of_range(memory, write->block);
	if (memory->queues[queue].used == NVJ_QUEUE_DEPTH)
		return nvju_fail(NVJ_EIO, "cannot write block %" PRIu64 ": the queue is full",
				 write->block);
	queued = &memory->queues[queue].queued[memory->queues[queue].used++];
	*queued = (struct queued){.write = write, .ends_ns = time_of_write(memory)};
	return 0;
}

/* The caller holds the lock. */
static void carry_out(struct memory_disk *memory, const struct nvj_write *write)
{
	uint8_t *to = memory->bytes + write->block * NVJ_BLOCK_BYTES;
	const uint8_t *from = write->image;
	unsigned at;

	for (at = 0; at < NVJ_BLOCK_BYTES; at += SECTOR) {
		if (write->error && !(memory->faults.torn && next_random(&memory->random) >> 63))
			continue;
		memcpy(to + at, from + at, SECTOR);
	}
	if (memory->dirty)
		memory->dirty[write->block] = 1;
}

static struct nvj_write *memory_finish_write(struct nvju_disk *disk, unsigned queue)
{
	struct memory_disk *memory = (struct memory_disk *)disk;
	struct queued *queued = memory->queues[queue].queued;
	struct nvj_write *write;
	unsigned n, first = 0;

	if (!memory->queues[queue].used)
		return NULL;
	for (n = 1; n < memory->queues[queue].used; n++)
		if (queued[n].ends_ns < queued[first].ends_ns)
			first = n;
	write = queued[first].write;
	if (queued[first].ends_ns)
		sleep_until(queued[first].ends_ns);
	queued[first] = queued[--memory->queues[queue].used];
	pthread_mutex_lock(&memory->lock);
	if (fails(memory, &memory->faults.next_write))
		write->error = nvju_fail(
			NVJ_EIO, "cannot write block %" PRIu64 ": the test says so", write->block);
	carry_out(memory, write);
	pthread_mutex_unlock(&memory->lock);
	return write;
}

static int memory_flush(struct nvju_disk *disk)
{
	struct memory_disk *memory = (struct memory_disk *)disk;
	uint64_t block;

	if (memory->model.flush_ns)
		sleep_until(nvju_monotonic_ns() + memory->model.flush_ns);
	if (lock_and_fail(memory, &memory->faults.next_flush))
		return nvju_fail(NVJ_EIO, "cannot flush the memory disk: the test says so");
	if (!memory->dirty)
		return 0;
	pthread_mutex_lock(&memory->lock);
	for (block = 0; block < memory->blocks; block++)
		if (memory->dirty[block]) {
			memcpy(memory->stable + block * NVJ_BLOCK_BYTES,
			       memory->bytes + block * NVJ_BLOCK_BYTES, NVJ_BLOCK_BYTES);
			memory->dirty[block] = 0;
		}
	pthread_mutex_unlock(&memory->lock);
	return 0;
}

static void unmap(void *memory, uint64_t bytes)
{
	if (memory)
		munmap(memory, bytes);
}

static void memory_close(struct nvju_disk *disk)
{
	struct memory_disk *memory = (struct memory_disk *)disk;

	unmap(memory->bytes, memory->blocks * NVJ_BLOCK_BYTES);
	unmap(memory->stable, memory->blocks * NVJ_BLOCK_BYTES);
	unmap(memory->dirty, memory->blocks);
	pthread_mutex_destroy(&memory->lock);
	free(memory);
}

static const struct nvju_disk_kind memory_kind = {
	.read = memory_read,
	.start_write = memory_start_write,
	.finish_write = memory_finish_write,
	.flush = memory_flush,
	.close = memory_close,
};

static void *zeros(uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static int no_memory(uint64_t blocks)
{
	return nvju_fail(NVJ_ENOMEM, "cannot make a memory disk of %" PRIu64 " blocks: no memory",
			 blocks);
}

int nvju_disk_memory(struct nvju_disk **disk, uint64_t blocks, const struct nvju_disk_model *model)
{
	struct memory_disk *memory;

	*disk = NULL;
	if (!blocks || blocks > INT64_MAX / NVJ_BLOCK_BYTES ||
	    (model && model->channels > MAX_CHANNELS))
		return nvju_fail(NVJ_EINVAL,
				 "cannot make a memory disk of %" PRIu64
				 " blocks: it needs 1 or more, and at most %u channels",
				 blocks, MAX_CHANNELS);
	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return no_memory(blocks);
	memory->disk.kind = &memory_kind;
	memory->blocks = blocks;
	memory->random = 1;
	if (model)
		memory->model = *model;
	pthread_mutex_init(&memory->lock, NULL);
	memory->bytes = zeros(blocks * NVJ_BLOCK_BYTES);
	if (memory->model.cached) {
		memory->stable = zeros(blocks * NVJ_BLOCK_BYTES);
		memory->dirty = zeros(blocks);
	}
	if (!memory->bytes || (memory->model.cached && (!memory->stable || !memory->dirty))) {
		memory_close(&memory->disk);
		return no_memory(blocks);
	}
	snprintf(memory->disk.how, sizeof(memory->disk.how), "memory");
	*disk = &memory->disk;
	return 0;
}

void *nvju_disk_bytes(struct nvju_disk *disk)
{
	return disk->kind == &memory_kind ? ((struct memory_disk *)disk)->bytes : NULL;
}

void nvju_disk_fail(struct nvju_disk *disk, const struct nvju_disk_faults *faults)
{
	struct memory_disk *memory = (struct memory_disk *)disk;

	if (disk->kind != &memory_kind)
		return;
	pthread_mutex_lock(&memory->lock);
	memory->faults = *faults;
	pthread_mutex_unlock(&memory->lock);
}

void nvju_disk_crash(struct nvju_disk *disk, uint64_t seed)
{
	struct memory_disk *memory = (struct memory_disk *)disk;
	uint64_t random = seed * 2 + 1; /* not 0 */
	uint64_t block;
	unsigned at;

	if (disk->kind != &memory_kind || !memory->dirty)
		return;
	for (block = 0; block < memory->blocks; block++) {
		uint8_t *now = memory->bytes + block * NVJ_BLOCK_BYTES;
		uint8_t *then = memory->stable + block * NVJ_BLOCK_BYTES;

		if (!memory->dirty[block])
			continue;
		for (at = 0; at < NVJ_BLOCK_BYTES; at += SECTOR)
			if (next_random(&random) >> 63)
				memcpy(now + at, then + at, SECTOR);
		memcpy(then, now, NVJ_BLOCK_BYTES);
		memory->dirty[block] = 0;
	}
}
