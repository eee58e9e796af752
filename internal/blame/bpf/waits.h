/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits: which phase of which commit each call waited for.
 */
#ifndef DAYBOOK_BLAME_WAITS_H
#define DAYBOOK_BLAME_WAITS_H

#include "journals.h"
#include "sums.h"

/* Returns how long two time spans overlap. An end b of 0 is not yet. */
static __always_inline __u64 overlap(__u64 from, __u64 until, __u64 a, __u64 b)
{
	if (!b)
		b = until;
	if (!a || a >= b)
		return 0;
	if (a < from)
		a = from;
	if (b > until)
		b = until;
	return a < b ? b - a : 0;
}

/*
 * The part of a call that waits for commits. Most syncs wait for one: what no commit
 * explains is then added to the same entry, which costs less than an entry of its own.
 */
struct span {
	__u64 from;
	__u64 until;
	__u64 cgroup;
	__u32 dev;
	__u32 operation;
	__u64 own;   /* the sync's own data */
	__u64 flush; /* its own flush */
	__u64 total; /* the whole call */
	__u64 known; /* what is no commit's of that */
	__u32 one;   /* there is one commit, so that the rest can go with it */
	__u32 added; /* it did */
	__u32 ended; /* and the call is in `ended_calls` */
	__u32 pad;
};

/*
 * Adds the part of a wait during which one commit ran, by its phases, and
 * returns its length. A commit waits for ordered data in two places: it submits
 * them before it writes the log, and it waits for pages while the log is on its
 * way. The function is not static, so that the verifier checks it once.
 */
__noinline __u64 add_commit(struct span *span, struct commit *c)
{
	__u64 from, until, whole, sum, known;
	struct wait_key key = {};
	struct wait wait = {};

	if (!span || !c)
		return 0;
	from = span->from;
	until = span->until;
	whole = overlap(from, until, c->start, c->end);
	if (!whole)
		return 0;
	wait.ns[PHASE_LOCK] = overlap(from, until, c->start, c->flushing ? c->flushing : c->end);
	if (c->memory) {
		/* The data and the flush of the disk come before the log. */
		__u64 data_end = c->logging ? c->logging : c->end;

		if (c->flushing)
			wait.ns[PHASE_DATA] =
				overlap(from, until, c->flushing, c->flush ? c->flush : data_end);
		wait.ns[PHASE_FLUSH] = overlap(from, until, c->flush, data_end);
		goto log;
	}
	wait.ns[PHASE_DATA] =
		overlap(from, until, c->data_from, c->data_until ? c->data_until : c->end);
	if (c->flushing)
		wait.ns[PHASE_DATA] +=
			overlap(from, until, c->flushing, c->logging ? c->logging : c->end);
	wait.ns[PHASE_FLUSH] = overlap(from, until, c->flush, c->end);
log:
	sum = wait.ns[PHASE_LOCK] + wait.ns[PHASE_DATA] + wait.ns[PHASE_FLUSH];
	wait.ns[PHASE_LOG] = whole > sum ? whole - sum : 0;

	sum += wait.ns[PHASE_LOG];
	if (span->one) {
		wait.ns[PHASE_OWN] = span->own;
		wait.ns[PHASE_FLUSH] += span->flush;
		known = span->known + sum;
		wait.ns[PHASE_REST] = span->total > known ? span->total - known : 0;
	}

	key.cgroup = span->cgroup;
	key.dev = span->dev;
	key.tid = c->tid;
	key.operation = span->operation;
	key.memory = c->memory;
	if (span->one && put_call(&key, &wait, span->total)) {
		span->added = 1;
		span->ended = 1;
		return sum;
	}
	if (!put_wait(&key, &wait))
		return 0;
	span->added = span->one;
	return sum;
}

/*
 * Adds the commits during a wait, the last one first. Most waits are for one, so
 * that the others are not looked at.
 */
static __always_inline __u64 add_commits(struct span *span)
{
	struct journal *journal = journal_of(span->dev);
	struct commit *commit;
	__u64 sum = 0;
	__u32 i, last;

	if (!journal || span->from >= span->until)
		return 0;
	last = journal->last;
	commit = &journal->commits[(last - 1) & (COMMITS - 1)];
	span->one = span->total && commit->end <= span->from && (commit->end || !commit->start);
	for (i = 0; i < COMMITS; i++) {
		commit = &journal->commits[(last - i) & (COMMITS - 1)];
		if (commit->end && commit->end <= span->from)
			break;
		sum += add_commit(span, commit);
	}
	return sum;
}

/* Adds the phases that are no commit's. */
static __always_inline void add_rest(struct span *span, __u64 own, __u64 checkpoint, __u64 flush,
				     __u64 rest)
{
	struct wait_key key = {
		.cgroup = span->cgroup, .dev = span->dev, .operation = span->operation};
	struct wait *wait = wait_of(&key);

	if (!wait)
		return;
	add(wait, PHASE_OWN, own);
	add(wait, PHASE_CHECKPOINT, checkpoint);
	add(wait, PHASE_FLUSH, flush);
	add(wait, PHASE_REST, rest);
}

/*
 * Ends a call with what is no commit's. The function is not static, so that the verifier
 * checks it once.
 */
__noinline int end_call(struct span *span, __u64 rest)
{
	struct wait_key key = {};
	struct wait wait = {};

	if (!span)
		return 0;
	key.cgroup = span->cgroup;
	key.dev = span->dev;
	key.operation = span->operation;
	wait.ns[PHASE_OWN] = span->own;
	wait.ns[PHASE_FLUSH] = span->flush;
	wait.ns[PHASE_REST] = rest;
	span->ended = put_call(&key, &wait, span->total);
	if (!span->ended)
		add_rest(span, span->own, 0, span->flush, rest);
	return 0;
}

#endif
