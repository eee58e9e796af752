/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Where the committed records of one ring are, in a list for each partition of
 * their blocks. With NVJ_PLACE_CPU the records of a block can be in any ring. So
 * without the index, the replay of each partition would read the headers of all
 * rings: 64 times as many headers with 64 rings as with one.
 *
 * One thread examines a ring and makes its index. Afterwards any thread reads it.
 */
#ifndef NVJ_REPLAY_INDEX_H
#define NVJ_REPLAY_INDEX_H

#include "../include/nvjournal.h"

/* The memory of the indexes of all rings together. */
#define NVJ_INDEX_BYTES (UINT64_C(64) << 20)

struct nvj_index;

/* NULL: no memory. */
struct nvj_index *nvj_index_new(const struct nvj_platform *platform, uint32_t partitions);
/* NULL is allowed. */
void nvj_index_free(const struct nvj_platform *platform, struct nvj_index *index);

/* Adds the record at a line of the ring. False: no memory, and it is not added. */
bool nvj_index_add(struct nvj_index *index, uint32_t partition, uint32_t line);

/* A list has the lines of a partition in the order in which they were added. */
#define NVJ_INDEX_LINES 13u
struct nvj_index_node {
	struct nvj_index_node *next;
	uint32_t count; /* not 0 */
	uint32_t line[NVJ_INDEX_LINES];
};

/* NULL: there are no lines. */
const struct nvj_index_node *nvj_index_first(const struct nvj_index *index, uint32_t partition);

#endif
