/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Summary trees. A leaf is the log2 of the largest free buddy of what it stands
 * for. Two neighbours that are all free are one buddy of twice the size: the first
 * leaf stands for both, and the second has -1.
 */
#include "jfs.h"

int8_t nvj_jfs_word_free(uint32_t allocated)
{
	/* Bit n is set: the 2^level bits of which it is the lowest are free. */
	uint32_t free = ~allocated, starts = 0xffffffffu;
	int8_t level = -1;

	while (free) {
		level++;
		/* A buddy of the next size starts at a multiple of it. */
		starts = level == 0   ? 0x55555555u
			 : level == 1 ? 0x11111111u
			 : level == 2 ? 0x01010101u
			 : level == 3 ? 0x00010001u
				      : 0x00000001u;
		if (level == 5)
			break;
		free &= free >> (1u << level) & starts;
	}
	return level;
}

int8_t nvj_jfs_tree_make(int8_t *tree, unsigned leaves, int8_t least)
{
	int8_t *leaf = tree + (leaves - 1) / 3;
	unsigned first = (leaves - 1) / 3, count = leaves;
	int8_t value = least;

	for (unsigned size = 1; size < leaves; size *= 2, value++)
		for (unsigned i = 0; i < leaves; i += 2 * size)
			if (leaf[i] == value && leaf[i + size] == value) {
				leaf[i] = (int8_t)(value + 1);
				leaf[i + size] = -1;
			}
	while (count > 1) {
		unsigned parents = (first - 1) / 4;

		count /= 4;
		for (unsigned i = 0; i < count; i++) {
			int8_t most = -1;

			for (unsigned child = 0; child < 4; child++)
				if (tree[first + 4 * i + child] > most)
					most = tree[first + 4 * i + child];
			tree[parents + i] = most;
		}
		first = parents;
	}
	return tree[0];
}
