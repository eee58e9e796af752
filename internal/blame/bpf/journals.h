/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Journals: the times of the last commits of each.
 */
#ifndef DAYBOOK_BLAME_JOURNALS_H
#define DAYBOOK_BLAME_JOURNALS_H

#include "taken.h"

/* When a commit came to each phase, in nanoseconds; 0: not yet, or never. */
struct commit {
	__u64 start;
	__u64 flushing;
	__u64 logging;
	__u64 data_from;
	__u64 data_until;
	__u64 flush;
	__u64 end;
	__u64 memory_tid; /* of a journal in memory: its own number of 48 bits */
	__u32 tid;        /* of a journal in memory: the number of the commit */
	__u32 memory;     /* 1: of a journal in memory */
};

/* A wait that spans more commits has a part that no phase explains. */
#define COMMITS 4

struct journal {
	struct commit commits[COMMITS];
	__u32 last; /* index of the last commit, modulo COMMITS */
	__u8 committing;
	__u8 locked;   /* the commit waits for handles */
	__u8 ordering; /* the commit waits for data */
	__u8 pad;
	__u64 wanted;  /* the greatest transaction for whose commit a task waits */
	__u64 home_at; /* when a checkpoint last wrote a block home */
};

/* Never freed. */
struct journal_place {
	__u32 dev; /* 0: free */
	__u32 pad;
	struct journal journal;
};

struct journal_place journal_places[1 << JOURNAL_PLACES_LOG2];

/* device of the file system -> its journal */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct journal);
} journals SEC(".maps");

static __always_inline __u32 journal_index(__u32 dev)
{
	return dev * 0x9e3779b1U >> (32 - JOURNAL_PLACES_LOG2);
}

static __always_inline struct journal *journal_of(__u32 dev)
{
	struct journal_place *place = &journal_places[journal_index(dev)];

	if (place->dev == dev)
		return &place->journal;
	if (!any_journal)
		return NULL;
	return bpf_map_lookup_elem(&journals, &dev);
}

const struct journal fresh_journal = {};

/* Not static, so that the verifier checks it once. */
__noinline int add_journal(__u32 dev)
{
	__u32 at = journal_index(dev);
	struct journal_place *place = &journal_places[at];

	if (!place->dev && take_place(at | OF_JOURNAL, dev)) {
		place->dev = dev;
		return 0;
	}
	any_journal = 1;
	bpf_map_update_elem(&journals, &dev, &fresh_journal, BPF_NOEXIST);
	return 0;
}

static __always_inline struct journal *make_journal(__u32 dev)
{
	struct journal *journal = journal_of(dev);

	if (journal)
		return journal;
	add_journal(dev);
	return journal_of(dev);
}

static __always_inline struct commit *last_commit(struct journal *journal)
{
	return &journal->commits[journal->last & (COMMITS - 1)];
}

#endif
