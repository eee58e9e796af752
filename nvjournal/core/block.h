/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A block in memory, and its versions.
 */
#ifndef NVJ_BLOCK_H
#define NVJ_BLOCK_H

#include "../include/nvjournal.h"
#include "compiler.h"
#include "lock.h"

/*
 * How many transactions have counters of their own: a power of two, and at
 * least as many as can be live at a time.
 */
#define NVJ_SLOTS 4u

/*
 * Memory for the content of one block. Neighbours in memory are often blocks of
 * different processors.
 */
struct nvj_image {
	NVJ_ALONE struct nvj_image *next;
	uint8_t *bytes;      /* NVJ_BLOCK_BYTES */
	uint64_t tid;        /* the transaction whose records made this content; 0: none */
	uint64_t revoked_by; /* when it is sealed, the image is obsolete; 0: none */
	/*
	 * Of a frozen image: the lines that it has. The others did not change
	 * after it, so they are those of the next newer version.
	 */
	uint64_t lines;
};

#define NVJ_NO_BLOCK (~UINT64_C(0))

/* Lists of blocks with work for the end of a transaction. */
enum nvj_list {
	NVJ_LIST_REVOKED, /* revoke.c */
	NVJ_LIST_LATER,   /* later.c */
	NVJ_LISTS
};

/*
 * A block that is not completely at home, or that was used recently. Entries
 * are freed only in nvj_close. Before that they are reused for other blocks. So
 * a search needs no lock. All fields except number, next and the two tids are
 * under lock.
 */
struct nvj_block {
	NVJ_ALONE uint64_t number; /* atomic; NVJ_NO_BLOCK: free */
	struct nvj_block *next;    /* atomic: in its bucket */
	/*
	 * Atomic, written under lock: the last transaction that accessed,
	 * created or revoked it.
	 */
	uint64_t newest_tid;
	/*
	 * The last transaction that accessed it and did not revoke it: for it
	 * nothing is left to prepare.
	 */
	uint64_t access_tid;
	struct nvj_lock lock;
	bool created; /* the content at home is not valid: the next record has all lines */
	bool dirty;   /* in the dirty list of lists, or taken by a round */
	uint8_t listed[NVJ_LISTS]; /* bit n: in listed[][n] of lists */
	struct nvj_image *image;   /* as last logged, or as it was at the first access */
	uint64_t home_tid; /* the transaction of the version at home, if it is one of ours */
	uint64_t sequence; /* of its last record */
	/*
	 * The caller's memory, if a change in transaction later_tid is not
	 * logged yet: later.c.
	 */
	const void *later;
	uint64_t later_tid;
	/*
	 * Counters, atomic to read: records, records that were the first after a
	 * fence, lines of zeros in records, and frozen images.
	 */
	uint32_t records;
	uint32_t batches;
	uint32_t zero_lines;
	uint32_t freezes;
	struct nvj_image *frozen; /* of earlier transactions, not at home; the newest first */
	struct nvj_image *spares; /* for the next freezes; they stay with the block */
	uint8_t spare_count;
	uint8_t promised;            /* how many of them open transactions may take */
	bool writing;                /* a version is being written home, from a copy */
	uint64_t writing_revoked_by; /* revoked_by of that version */
	struct nvj_block *dirty_next;
	struct nvj_block *listed_next[NVJ_LISTS][NVJ_SLOTS];
	struct nvj_block *free_next;
	/*
	 * Fixed: the partition that has the entry in its slabs, and so in its
	 * lists. With rings by processor it is that of the processor that made the
	 * entry, and its number may be of another partition.
	 */
	struct nvj_partition *lists;
};

struct nvj_bucket {
	struct nvj_block *first; /* atomic */
	struct nvj_lock lock;    /* for changes of the chain */
};

#endif
