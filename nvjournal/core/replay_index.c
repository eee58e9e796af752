/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The index of a ring: a list of nodes for each partition. Nodes have the size of
 * a cache line and come from larger pieces of memory.
 */
#include "replay_index.h"

#define PIECE_BYTES ((size_t)16 << 10)
#define NODES_OF_PIECE (PIECE_BYTES / sizeof(struct nvj_index_node) - 1)

struct piece {
	struct piece *next;
	_Alignas(sizeof(struct nvj_index_node)) struct nvj_index_node node[NODES_OF_PIECE];
};

_Static_assert(sizeof(struct nvj_index_node) == NVJ_LINE_BYTES, "a node is a cache line");
_Static_assert(sizeof(struct piece) == PIECE_BYTES, "the size of a piece");

struct list {
	struct nvj_index_node *first, *last;
};

struct nvj_index {
	const struct nvj_platform *platform;
	uint32_t partitions;
	uint32_t pieces_left; /* how many more it may have */
	uint32_t used;        /* nodes of the newest piece */
	struct piece *pieces; /* the newest one first */
	struct list list[];
};

static size_t bytes_of(uint32_t partitions)
{
	return sizeof(struct nvj_index) + partitions * sizeof(struct list);
}

struct nvj_index *nvj_index_new(const struct nvj_platform *platform, uint32_t partitions)
{
	struct nvj_index *index = platform->allocate(platform->context, bytes_of(partitions));

	if (!index)
		return NULL;
	index->platform = platform;
	index->partitions = partitions;
	index->pieces_left = (uint32_t)(NVJ_INDEX_BYTES / PIECE_BYTES / partitions);
	return index;
}

void nvj_index_free(const struct nvj_platform *platform, struct nvj_index *index)
{
	if (!index)
		return;
	while (index->pieces) {
		struct piece *piece = index->pieces;

		index->pieces = piece->next;
		platform->release(platform->context, piece, sizeof(*piece));
	}
	platform->release(platform->context, index, bytes_of(index->partitions));
}

static struct nvj_index_node *new_node(struct nvj_index *index)
{
	const struct nvj_platform *p = index->platform;
	struct piece *piece = index->pieces;

	if (!piece || index->used == NODES_OF_PIECE) {
		if (!index->pieces_left)
			return NULL;
		piece = p->allocate(p->context, sizeof(*piece));
		if (!piece)
			return NULL;
		piece->next = index->pieces;
		index->pieces = piece;
		index->pieces_left--;
		index->used = 0;
	}
	return &piece->node[index->used++];
}

bool nvj_index_add(struct nvj_index *index, uint32_t partition, uint32_t line)
{
	struct list *list = &index->list[partition];
	struct nvj_index_node *node = list->last;

	if (!node || node->count == NVJ_INDEX_LINES) {
		node = new_node(index);
		if (!node)
			return false;
		if (list->last)
			list->last->next = node;
		else
			list->first = node;
		list->last = node;
	}
	node->line[node->count++] = line;
	return true;
}

const struct nvj_index_node *nvj_index_first(const struct nvj_index *index, uint32_t partition)
{
	return index->list[partition].first;
}
