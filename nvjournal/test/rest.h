/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the core at rest stand on: a region and a disk in memory, a
 * platform that counts what it gave out, and a journal written by hand with the
 * functions of core/format.h. Everything is checked by expect(), which ends the
 * test at the first thing that is not so.
 */
#ifndef TEST_REST_H
#define TEST_REST_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/format.h"
#include "../core/recover.h"
#include "lib/expect.h"

#define REST_BLOCKS 256u

struct rest {
	uint8_t *memory; /* of the region, exactly: the address sanitizer sees a byte beside it */
	uint8_t disk[REST_BLOCKS][NVJ_BLOCK_BYTES];
	struct nvj_region region;
	struct nvj_platform platform;
	struct nvj_geometry g;
	uint64_t head[NVJ_MAX_PARTITIONS];
	uint64_t allocated; /* bytes, not released */
	uint64_t allocations_until_error;
	size_t largest; /* larger pieces there are none; 0: there are */
	int in_flight[NVJ_MAX_QUEUES];
	struct nvj_write *queue[NVJ_MAX_QUEUES][NVJ_QUEUE_DEPTH];
	uint64_t reads, writes, flushes;
	uint64_t writes_until_error, reads_until_error, flushes_until_error;
	uint64_t dirty; /* writes that no flush has followed */
	uint8_t *copy;  /* of the region, by rest_keep */
	uint8_t (*disk_copy)[NVJ_BLOCK_BYTES];
};

/* 0: never; 1: now; more: later. */
static inline bool rest_fails(uint64_t *until)
{
	return *until && --*until == 0;
}

static inline void *rest_allocate(void *context, size_t bytes)
{
	struct rest *t = context;
	size_t whole = (bytes + 63) / 64 * 64;
	void *memory;

	expect(bytes && bytes < (64u << 20));
	if (rest_fails(&t->allocations_until_error) || (t->largest && bytes > t->largest))
		return NULL;
	memory = aligned_alloc(64, whole);
	expect(memory);
	memset(memory, 0, whole);
	__atomic_fetch_add(&t->allocated, bytes, __ATOMIC_RELAXED);
	return memory;
}

static inline void rest_release(void *context, void *memory, size_t bytes)
{
	struct rest *t = context;

	expect(memory);
	__atomic_fetch_sub(&t->allocated, bytes, __ATOMIC_RELAXED);
	free(memory);
}

static inline int rest_read(void *context, uint64_t block, void *image)
{
	struct rest *t = context;

	__atomic_fetch_add(&t->reads, 1, __ATOMIC_RELAXED);
	if (block >= REST_BLOCKS || rest_fails(&t->reads_until_error))
		return NVJ_EIO;
	memcpy(image, t->disk[block], NVJ_BLOCK_BYTES);
	return 0;
}

static inline int rest_start_write(void *context, unsigned queue, struct nvj_write *write)
{
	struct rest *t = context;

	expect(queue < NVJ_MAX_QUEUES && t->in_flight[queue] < (int)NVJ_QUEUE_DEPTH);
	expect((uintptr_t)write->image % 64 == 0);
	if (write->block >= REST_BLOCKS)
		return NVJ_EIO;
	t->queue[queue][t->in_flight[queue]++] = write;
	return 0;
}

/* The newest first: writes may end in any order. Only then is the image read. */
static inline struct nvj_write *rest_finish_write(void *context, unsigned queue)
{
	struct rest *t = context;
	struct nvj_write *w;

	expect(t->in_flight[queue] > 0);
	w = t->queue[queue][--t->in_flight[queue]];
	w->error = rest_fails(&t->writes_until_error) ? NVJ_EIO : 0;
	if (!w->error) {
		memcpy(t->disk[w->block], w->image, NVJ_BLOCK_BYTES);
		__atomic_fetch_add(&t->writes, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&t->dirty, 1, __ATOMIC_RELAXED);
	}
	return w;
}

static inline int rest_flush(void *context)
{
	struct rest *t = context;

	if (rest_fails(&t->flushes_until_error))
		return NVJ_EIO;
	t->flushes++;
	t->dirty = 0;
	return 0;
}

static const struct nvj_format_options rest_options = {
	.placement = NVJ_PLACE_BLOCK,
	.commits = 16,
	.uuid = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

/* An unformatted region, full of rubbish, and a disk. */
static inline struct rest *rest_new(uint64_t size_bytes)
{
	struct rest *t = calloc(1, sizeof(*t));

	expect(t);
	t->memory = aligned_alloc(64, size_bytes);
	expect(t->memory);
	for (uint64_t i = 0; i < size_bytes; i++)
		t->memory[i] = (uint8_t)(i * 7 + i / 251);
	for (unsigned b = 0; b < REST_BLOCKS; b++)
		for (unsigned i = 0; i < NVJ_BLOCK_BYTES; i++)
			t->disk[b][i] = (uint8_t)(b + i / 64);
	t->region = (struct nvj_region){.base = t->memory,
					.size_bytes = size_bytes,
					.persistence = nvj_persistence("none")};
	t->platform = (struct nvj_platform){
		.context = t,
		.allocate = rest_allocate,
		.release = rest_release,
		.read = rest_read,
		.start_write = rest_start_write,
		.finish_write = rest_finish_write,
		.flush = rest_flush,
	};
	return t;
}

/* A journal of so many partitions with rings of ring_lines lines, or as many as fit. */
static inline struct rest *rest_formatted(uint32_t partitions, uint32_t ring_lines)
{
	struct nvj_format_options options = rest_options;
	uint64_t commit_bytes = 16u * nvj_commit_lines(partitions) * NVJ_LINE_BYTES;
	uint64_t offset = (NVJ_COMMITS_OFFSET + commit_bytes + 4095) / 4096 * 4096;
	struct rest *t = rest_new(offset + (uint64_t)partitions * ring_lines * NVJ_LINE_BYTES);
	struct nvj_disk_super super;

	options.partitions = partitions;
	expect(nvj_format(&t->region, &options) == 0);
	expect(nvj_read_super(&t->region, &super) == 0);
	expect(nvj_geometry(&t->region, &super, &t->g) == 0);
	expect(t->g.ring_lines == ring_lines && t->g.partitions == partitions);
	return t;
}

static inline void rest_free(struct rest *t)
{
	expect(t->allocated == 0);
	free(t->memory);
	free(t->copy);
	free(t->disk_copy);
	free(t);
}

/* Region and disk as they are now, to come back to by rest_back. */
static inline void rest_keep(struct rest *t)
{
	if (!t->copy) {
		t->copy = malloc(t->region.size_bytes);
		t->disk_copy = malloc(sizeof(t->disk));
	}
	expect(t->copy && t->disk_copy);
	memcpy(t->copy, t->memory, t->region.size_bytes);
	memcpy(t->disk_copy, t->disk, sizeof(t->disk));
}

static inline void rest_back(struct rest *t)
{
	memcpy(t->memory, t->copy, t->region.size_bytes);
	memcpy(t->disk, t->disk_copy, sizeof(t->disk));
	t->dirty = 0;
}

static inline bool rest_untouched(const struct rest *t)
{
	return !memcmp(t->memory, t->copy, t->region.size_bytes) &&
	       !memcmp(t->disk, t->disk_copy, sizeof(t->disk));
}

/* Makes a journal of format version 1 of one that has just been formatted. */
static inline void rest_make_old(struct rest *t)
{
	for (unsigned copy = 0; copy < 2; copy++) {
		struct nvj_disk_super *super =
			(void *)(t->memory + (copy ? NVJ_SUPER_COPY_OFFSET : NVJ_SUPER_OFFSET));

		super->version = 1;
		super->placement = 0;
		super->crc = nvj_super_crc(super);
	}
	t->g.sequenced = false;
}

/* Makes a journal with records in any ring of one that has just been formatted. */
static inline void rest_place_by_cpu(struct rest *t)
{
	for (unsigned copy = 0; copy < 2; copy++) {
		struct nvj_disk_super *super =
			(void *)(t->memory + (copy ? NVJ_SUPER_COPY_OFFSET : NVJ_SUPER_OFFSET));

		super->placement = NVJ_PLACE_CPU;
		super->crc = nvj_super_crc(super);
	}
	t->g.by_cpu = true;
}

/* Logs in a ring: the lines of mask & ~zeros get the byte value. */
static inline uint64_t rest_log_in(struct rest *t, uint32_t partition, uint64_t sequence,
				   uint64_t tid, enum nvj_record_kind kind, uint64_t block,
				   uint64_t mask, uint64_t zeros, uint8_t value)
{
	uint64_t position = t->head[partition];
	_Alignas(64) uint8_t image[NVJ_BLOCK_BYTES];
	struct nvj_disk_record header;

	memset(image, value, sizeof(image));
	nvj_record_begin(&header, kind, position, tid, block, sequence, mask, zeros);
	header.crc = nvj_record_crc_image(t->g.seed, &header, image);
	nvj_record_write(&t->g, t->region.persistence, partition, &header, image);
	t->head[partition] += header.lines;
	return position;
}

/* Logs in the ring of the block, in the order of the ring. */
static inline uint64_t rest_log(struct rest *t, uint64_t tid, enum nvj_record_kind kind,
				uint64_t block, uint64_t mask, uint64_t zeros, uint8_t value)
{
	uint32_t partition = (uint32_t)(block % t->g.partitions);

	return rest_log_in(t, partition, t->g.sequenced ? t->head[partition] + 1 : 0, tid, kind,
			   block, mask, zeros, value);
}

/* Seals tid, with low and high as given; NULL: the heads as they are. */
static inline void rest_seal(struct rest *t, uint64_t tid, enum nvj_commit_kind kind,
			     const uint64_t *low, const uint64_t *high)
{
	struct nvj_commit_buffer b;

	nvj_commit_begin(&t->g, &b, tid, kind, 1000 + tid);
	for (uint32_t i = 0; i < t->g.partitions; i++) {
		b.at[i].low = low ? low[i] : t->head[i];
		b.at[i].high = high ? high[i] : t->head[i];
	}
	nvj_commit_write_body(&t->g, t->region.persistence, &b);
	nvj_commit_write_seal(&t->g, t->region.persistence, &b);
}

/* The n-th line of a block is all value. */
static inline bool rest_line_is(const struct rest *t, uint64_t block, unsigned line, uint8_t value)
{
	for (unsigned i = 0; i < 64; i++)
		if (t->disk[block][line * 64 + i] != value)
			return false;
	return true;
}

/* The n-th line of a block is as on the first day. */
static inline bool rest_line_old(const struct rest *t, uint64_t block, unsigned line)
{
	return rest_line_is(t, block, line, (uint8_t)(block + line));
}

#endif
