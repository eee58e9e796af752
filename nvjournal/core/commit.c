/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Commit (paper 3, Fig. 3; paper 4, Fig. 3, PROCESS_COMMIT), by the leader that
 * lead.c has chosen.
 *
 * 	close	read the heads of the rings (low); start the next transaction
 * 	drain	wait until no handle of the closed transaction is open
 * 	merge	if a handle accessed a block of a later transaction: close that, too
 * 	log	write the records of pending blocks (later.c)
 * 	follow	wait until each record before the heads (high) has its flag
 * 	seal	write the record, fence, write the seal, fence
 */
#include "journal.h"
#include "spin.h"

/* How often the leader checks before it sleeps. */
#define LOOKS 200
/*
 * How long, in nanoseconds, it sleeps where no thread wakes it: while a record
 * is copied.
 */
#define COPY_NS UINT64_C(50000)
/* How long the leader checks before it sleeps, if it is alone on its processor. */
#define DRAIN_NS UINT64_C(20000)

/*
 * The transactions first..last, which are committed together; their records are
 * in record[0..].
 */
struct group {
	uint64_t first, last;
	uint64_t began_ns;
	uint64_t high[NVJ_MAX_PARTITIONS];
};

/*
 * Closes the running transaction. low is read before running is stored. A
 * handle of the next transaction logs only after it has loaded running. So all
 * its records are at low or after it. closing is also stored before running, so
 * that a handle of the next transaction sees it.
 */
static void close_running(struct nvj *j, struct group *g, uint64_t tid)
{
	struct nvj_commit_buffer *record = &j->record[tid - g->first];
	uint64_t now_ns = j->platform.now_ns(j->platform.context);

	nvj_commit_begin(&j->geometry, record, tid, NVJ_COMMIT, now_ns);
	if (tid == g->first)
		g->began_ns = now_ns;
	for (unsigned i = 0; i < j->partitions; i++)
		record->at[i].low = nvj_load_sc(&j->partition[i].head);
	nvj_store_release(&j->closing, tid);
	nvj_store(&j->draining, 1);
	nvj_store_sc(&j->running, tid + 1);
	g->last = tid;
}

static void drain(struct nvj *j, uint64_t tid)
{
	struct nvj_spin spin;
	unsigned cpu = 0;

	for (int i = 0; i < LOOKS; i++) {
		if (nvj_handles_drained(j, tid, &cpu))
			return;
		nvj_relax();
	}
	spin = nvj_spin_for(&j->platform, DRAIN_NS);
	while (nvj_spin_on(&j->platform, &spin))
		if (nvj_handles_drained(j, tid, &cpu))
			return;
	for (;;) {
		uint32_t rings = nvj_attend(&j->drained);
		bool ended = nvj_handles_drained(j, tid, &cpu) || nvj_load_sc(&j->aborted);

		if (!ended)
			j->platform.wait(j->platform.context, &j->drained.rings, rings,
					 nvj_ended_bell_ns(j));
		nvj_leave(&j->drained);
		if (ended)
			return;
	}
}

static void set_gate(struct nvj *j, bool shut)
{
	uint32_t hold = nvj_load_sc(&j->hold);
	uint32_t to;

	do
		to = shut ? hold | NVJ_HOLD_GATE : hold & ~NVJ_HOLD_GATE;
	while (!nvj_replace_sc(&j->hold, &hold, to));
	if (!shut)
		j->platform.wake(j->platform.context, &j->hold);
}

/*
 * Closes the last transaction that fits into the group. The gate is shut first:
 * a handle that would join the next transaction finds it shut. So no handle of
 * the next transaction is open until this one has ended. A handle with a
 * reservation must not wait: it joins this transaction, although it may be
 * closed.
 */
static void close_last(struct nvj *j, struct group *g, uint64_t tid)
{
	nvj_store_sc(&j->gate_tid, tid);
	nvj_store_sc(&j->joinable, tid);
	set_gate(j, true);
	close_running(j, g, tid);
	for (;;) {
		drain(j, tid);
		/*
		 * A handle that joins adds itself to the counts and then loads
		 * joinable. The leader stores joinable and then reads the
		 * counts. So either the leader sees the handle, or the handle
		 * sees that it is too late.
		 */
		nvj_store_sc(&j->joinable, 0);
		if (nvj_handles_ended(j, tid) || nvj_load_sc(&j->aborted))
			break;
		nvj_store_sc(&j->joinable, tid);
	}
	/*
	 * The group cannot grow any more. And before_commit may wait for a
	 * thread that waits for the start of a handle.
	 */
	set_gate(j, false);
}

/*
 * Closes the running transaction. As long as the last closed one must be
 * committed together with the next, it closes that, too, up to NVJ_GROUP
 * transactions.
 */
static void close_group(struct nvj *j, struct group *g)
{
	g->first = nvj_load_sc(&j->running);
	close_running(j, g, g->first);
	drain(j, g->last);
	while (!nvj_load_sc(&j->aborted) && nvj_load_sc(&j->merge_to) > g->last) {
		j->record[g->last - g->first].kind = NVJ_MERGED;
		if (g->last + 2 - g->first == NVJ_GROUP) {
			close_last(j, g, g->last + 1);
			return;
		}
		close_running(j, g, g->last + 1);
		drain(j, g->last);
	}
}

/*
 * Waits until each record before high is whole, of all transactions, because
 * recovery reads all of them. A handle sets the flags of its records before it
 * is counted as ended. So if no handle was open after the heads were read, not
 * even one of the next transaction, all records are whole. Then the flags,
 * which are in caches of other processors, need not be read.
 */
static void follow_flags(struct nvj *j, struct group *g)
{
	for (unsigned i = 0; i < j->partitions; i++)
		g->high[i] = nvj_load_sc(&j->partition[i].head);
	if (nvj_handles_ended(j, g->last + 1))
		return;
	for (unsigned i = 0; i < j->partitions; i++) {
		/*
		 * Handles of later transactions set their flags at once,
		 * because closing is set.
		 */
		for (int looks = 0; !nvj_flags_follow(j, &j->partition[i], g->high[i]); looks++) {
			const uint32_t never = 0;

			if (nvj_load_sc(&j->aborted))
				return;
			if (looks < LOOKS)
				nvj_relax();
			else
				j->platform.wait(j->platform.context, &never, 0, COPY_NS);
		}
	}
}

static void seal(struct nvj *j, struct group *g)
{
	const struct nvj_persistence *way = j->persistence;
	const struct nvj_commit_buffer *last = &j->record[g->last - g->first];
	uint64_t *lows = nvj_lows(j, g->last);

	for (uint64_t tid = g->first; tid <= g->last; tid++) {
		struct nvj_commit_buffer *record = &j->record[tid - g->first];

		for (unsigned i = 0; i < j->partitions; i++)
			record->at[i].high = g->high[i];
		nvj_commit_write_body(&j->geometry, way, record);
	}
	for (unsigned i = 0; i < j->partitions; i++)
		nvj_store(&lows[i], last->at[i].low);
	/* A seal becomes persistent only after all that it seals. */
	nvj_fence(j);
	for (uint64_t tid = g->first; tid <= g->last; tid++) {
		nvj_commit_write_seal(&j->geometry, way, &j->record[tid - g->first]);
		/*
		 * Seals become persistent in the order of their numbers. The
		 * last one is persistent before nvj_commit returns to any
		 * caller.
		 */
		nvj_fence(j);
	}
	/* Only the leader writes these. */
	nvj_store(&j->transactions, j->transactions + (g->last - g->first + 1));
	nvj_store(&j->merged, j->merged + (g->last - g->first));
}

/*
 * Waits for free slots in the commit ring. A slot is reused when the tail is
 * beyond the transaction in it. A checkpoint starts early, so that a commit
 * waits only if the disk is slower than the commits.
 */
static int find_slots(struct nvj *j)
{
	uint64_t last = nvj_load_sc(&j->running) + NVJ_GROUP - 1;
	uint64_t used = last - nvj_load_sc(&j->tail);

	if (last > NVJ_MAX_TID) {
		nvj_abort_at(j, NVJ_EROFS, NVJ_NO_BLOCK);
		return NVJ_EROFS;
	}
	nvj_room_slots(j, used);
	if (used < j->geometry.commits)
		return 0;
	return nvj_checkpoint_to(j, nvj_load_sc(&j->committed));
}

int nvj_commit_group(struct nvj *j)
{
	struct group g;
	int error;

	/*
	 * Another processor may have led the last commit. Fetch all the lines at
	 * the same time.
	 */
	nvj_will_write(&j->running);
	nvj_will_write(&j->record[0]);
	error = find_slots(j);
	if (error)
		return error;
	close_group(j, &g);
	nvj_store_release(&j->draining, 0);
	if (nvj_load_sc(&j->aborted))
		return nvj_aborted(j);
	nvj_later_write_all(j, g.first, g.last);
	if (j->platform.before_commit) {
		error = j->platform.before_commit(j->platform.context, g.last);
		if (error) {
			nvj_abort_at(j, error, NVJ_NO_BLOCK);
			return error;
		}
	}
	follow_flags(j, &g);
	if (nvj_load_sc(&j->aborted))
		return nvj_aborted(j);
	nvj_store_release(&j->closing, 0);
	seal(j, &g);

	/*
	 * First for a checkpoint, which must not write blocks that these
	 * transactions have revoked; see revoke.c.
	 */
	nvj_store_release(&j->sealed, g.last);
	for (uint64_t tid = g.first; tid <= g.last; tid++)
		nvj_revokes_seal(j, tid);
	if (j->platform.alone)
		nvj_store(&j->commit_ns, j->platform.now_ns(j->platform.context) - g.began_ns);
	nvj_store_release(&j->committed, g.last);
	return 0;
}
