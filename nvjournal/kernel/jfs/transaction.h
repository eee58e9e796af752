/* SPDX-License-Identifier: GPL-2.0 */
/* What a JFS transaction has changed: noted in maps.c and transaction.c. */
#ifndef JFSNVJ_TRANSACTION_H
#define JFSNVJ_TRANSACTION_H

#include "journal.h"
#include "jfs_imap.h"

/* A page of a map that the transaction changes. */
struct map {
	struct metapage *mp;
	u64 block;
	u64 most;      /* the lines that it may log */
	u32 bits_byte; /* where the persistent map begins in the page */
	/* Of a page of the inode map: the extents of its inodes. */
	DECLARE_BITMAP(extents, EXTSPERIAG);
};

/* Bits of a persistent map. */
struct change {
	u32 map;
	u32 first, count;
	bool free;
};

/* A page that is logged by comparison. */
struct page_note {
	struct tlock *tlck;
	u64 changed; /* lines that JFS says it has changed */
};

struct revoke {
	u64 block;
	struct folio *folio;
};

/* Grows as needed. */
#define LIST(type)                                                                                 \
	struct {                                                                                   \
		type *at;                                                                          \
		unsigned int count, most;                                                          \
	}

struct jfsnvj_tx {
	struct nvj_handle handle;
	LIST(struct page_note) pages;
	LIST(struct map) maps;
	LIST(struct change) changes;
	LIST(struct revoke) revokes;
};

void *jfsnvj_grow(void *at, unsigned int *most, unsigned int count, size_t size);

/* A new last element of the list. */
#define ADD(list)                                                                                  \
	({                                                                                         \
		if ((list)->count == (list)->most)                                                 \
			(list)->at = jfsnvj_grow((list)->at, &(list)->most, (list)->count,         \
						 sizeof(*(list)->at));                             \
		&(list)->at[(list)->count++];                                                      \
	})

static inline u64 lines_mask(u32 first_byte, u32 last_byte)
{
	return GENMASK_ULL(last_byte / NVJ_LINE_BYTES, first_byte / NVJ_LINE_BYTES);
}

/* maps.c */
/*
 * Notes the page of the inode map with that number, and in it an extent of inodes. Its
 * number in tx->maps; negative: it cannot be read.
 */
int jfsnvj_find_iag(struct jfsnvj_tx *tx, struct inode *ipimap, u32 iagno, u32 extent);
/* Changes the persistent map. Returns the lines that differ now. */
u64 jfsnvj_apply(const struct map *map, const struct change *change);

#endif
