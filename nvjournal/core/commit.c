/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Commit (paper 3, Fig. 3; paper 4, Fig. 3, PROCESS_COMMIT). Who calls nvj_commit
 * does it: one becomes the leader, the others wait for his bell.
 *
 *	close	heads are read, low; the next transaction is the running one
 *	drain	until no handle of it is open
 *	merge	if one of them met a later transaction's block: close that, too
 *	follow	until every record before the heads, high, is flagged
 *	seal	record, fence, seal, fence
 */
#include "journal.h"

/* Leader and followers look so often before they sleep. */
#define LOOKS 200
/* Who follows gives way to other threads at each of so many looks. */
#define LOOKS_EACH_YIELD 16
/* And sleeps so long, where nobody will wake him: a copy is under way. */
#define COPY_NS UINT64_C(50000)

/* Transactions that are being committed: first..last, in record[0..]. */
struct group {
	uint64_t first, last;
	uint64_t high[NVJ_MAX_PARTITIONS];
};

/*
 * The running transaction closes. low is read before running is stored, and a
 * handle of the next one logs after it has loaded running: so all its records
 * lie at low or after it. closing is stored before running, too: a handle of the
 * next one finds it.
 */
static void close_running(struct nvj *j, struct group *g, uint64_t tid)
{
	struct nvj_commit_buffer *record = &j->record[tid - g->first];

	nvj_commit_begin(&j->geometry, record, tid, NVJ_COMMIT,
			 j->platform.now_ns(j->platform.context));
	for (unsigned i = 0; i < j->partitions; i++)
		record->at[i].low = nvj_load_sc(&j->partition[i].head);
	nvj_store_release(&j->closing, tid);
	nvj_store_sc(&j->running, tid + 1);
	g->last = tid;
}

static void drain(struct nvj *j, uint64_t tid)
{
	for (int i = 0; i < LOOKS; i++) {
		if (nvj_handles_ended(j, tid))
			return;
		nvj_relax();
	}
	for (;;) {
		uint32_t rings = nvj_attend(&j->drained);
		bool ended = nvj_handles_ended(j, tid) || nvj_load_sc(&j->aborted);

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
 * The last transaction that the group may have is about to close. First the gate
 * does: whoever counts himself into the one behind it finds it shut, so no handle
 * of that is open until this one has ended. But who has a reservation does not
 * wait: he joins this one, closed or not.
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
		 * Who joins counts himself in, then loads joinable; we store that,
		 * then look at the counts again: he is seen, or finds it too late.
		 */
		nvj_store_sc(&j->joinable, 0);
		if (nvj_handles_ended(j, tid) || nvj_load_sc(&j->aborted))
			break;
		nvj_store_sc(&j->joinable, tid);
	}
	/*
	 * Nobody can want the group to be larger any more. And before_commit may
	 * wait for who waits for us: for a handle's beginning, that is.
	 */
	set_gate(j, false);
}

/*
 * Closes the running transaction and, as long as the last one closed must be
 * committed together with the next, that, until there are NVJ_GROUP.
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
 * Every record before high is whole, of whatever transaction: recovery walks over
 * all. A handle flags its records before it is counted out; so where no handle is
 * open behind the look at the heads, none of the next transaction either, there is
 * nothing to wait for, and the flags, which are in other processors' caches, need
 * not be read.
 */
static void follow_flags(struct nvj *j, struct group *g)
{
	for (unsigned i = 0; i < j->partitions; i++)
		g->high[i] = nvj_load_sc(&j->partition[i].head);
	if (nvj_handles_ended(j, g->last + 1))
		return;
	for (unsigned i = 0; i < j->partitions; i++) {
		/* Later transactions' handles flag at once, as closing is set. */
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
	/* A seal is persistent only after all that it seals. */
	nvj_fence(j);
	for (uint64_t tid = g->first; tid <= g->last; tid++) {
		nvj_commit_write_seal(&j->geometry, way, &j->record[tid - g->first]);
		/*
		 * Seals are persistent in the order of their numbers; and the
		 * last one before anybody is told that he is committed.
		 */
		nvj_fence(j);
	}
	/* These are the leader's alone. */
	nvj_store(&j->transactions, j->transactions + (g->last - g->first + 1));
	nvj_store(&j->merged, j->merged + (g->last - g->first));
}

/*
 * The slots of the group must not be needed any more: a slot is used again when
 * the tail is beyond the transaction in it.
 */
static int find_slots(struct nvj *j)
{
	uint64_t last = nvj_load_sc(&j->running) + NVJ_GROUP - 1;

	if (last > NVJ_MAX_TID) {
		nvj_abort_at(j, NVJ_EROFS, NVJ_NO_BLOCK);
		return NVJ_EROFS;
	}
	if (last - nvj_load_sc(&j->tail) < j->geometry.commits)
		return 0;
	return nvj_checkpoint_to(j, nvj_load_sc(&j->committed));
}

static int commit_group(struct nvj *j)
{
	struct group g;
	int error;

	/* Another processor led last; all of it comes at the same time. */
	nvj_will_write(&j->running);
	nvj_will_write(&j->record[0]);
	error = find_slots(j);
	if (error)
		return error;
	close_group(j, &g);
	if (nvj_load_sc(&j->aborted))
		return nvj_aborted(j);
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

	/* First for a checkpoint, which must not write what these have revoked; see revoke.c. */
	nvj_store_sc(&j->sealed, g.last);
	for (uint64_t tid = g.first; tid <= g.last; tid++)
		nvj_revokes_seal(j, tid);
	nvj_store_release(&j->committed, g.last);
	return 0;
}

static int lead(struct nvj *j, uint64_t tid)
{
	int error = 0;

	while (!error && nvj_load_sc(&j->committed) < tid)
		error = nvj_load_sc(&j->aborted) ? nvj_aborted(j) : commit_group(j);
	/*
	 * In one order with followers' counting themselves in and their looks: they
	 * find this, and so what was committed before it, or hear the bell. Who came
	 * after the last commit leads now.
	 */
	nvj_store_sc(&j->leading, 0);
	nvj_ring_bell(&j->followers, &j->platform);
	return error;
}

/* Another's commit has served tid: *done; or nobody leads, and the caller does now: true. */
static bool take_lead(struct nvj *j, uint64_t tid, bool *done)
{
	uint32_t nobody = 0;

	*done = nvj_load_sc(&j->committed) >= tid;
	return !*done && !nvj_load_sc(&j->leading) && nvj_replace_sc(&j->leading, &nobody, 1);
}

/*
 * Waits until another's commit has served tid, or nobody leads. True: lead. A
 * commit takes less time than it takes to sleep and be woken: a few looks first.
 */
static bool follow(struct nvj *j, uint64_t tid)
{
	bool done, leads;

	for (int i = 0; i < LOOKS; i++) {
		leads = take_lead(j, tid, &done);
		if (done || leads)
			return leads;
		if (i % LOOKS_EACH_YIELD == LOOKS_EACH_YIELD - 1 && j->platform.yield)
			j->platform.yield(j->platform.context);
		else
			nvj_relax();
	}
	for (;;) {
		uint32_t rings = nvj_attend(&j->followers);

		leads = take_lead(j, tid, &done);
		if (!done && !leads)
			j->platform.wait(j->platform.context, &j->followers.rings, rings,
					 NVJ_SAFETY_NS);
		nvj_leave(&j->followers);
		if (done || leads)
			return leads;
	}
}

/* Leads, or waits for who does, until tid is committed. */
static int commit_until(struct nvj *j, uint64_t tid)
{
	uint32_t nobody = 0;

	if (nvj_load_acquire(&j->committed) >= tid)
		return 0;
	if (nvj_replace_sc(&j->leading, &nobody, 1) || follow(j, tid))
		return lead(j, tid);
	nvj_count(&j->cpu[j->platform.cpu(j->platform.context) % NVJ_CPUS].commits_waited, 1);
	return 0;
}

int nvj_commit_to(struct nvj *j, uint64_t tid)
{
	uint64_t running = nvj_load_sc(&j->running);

	if (tid > running)
		return NVJ_EINVAL;
	if (tid == 0)
		tid = running;
	if (tid == running && nvj_load_acquire(&j->dirty[tid & (NVJ_SLOTS - 1)]) != tid) {
		/*
		 * A transaction in which nothing was logged need not be closed.
		 * Unless the journal was aborted: then something may have been
		 * refused.
		 */
		int error = commit_until(j, tid - 1);

		return error ? error : nvj_aborted(j);
	}
	return commit_until(j, tid);
}

/*
 * Room counts from the tail's low, which was read a little before its transaction
 * closed: if that took its time, most of the ring may have been filled after low
 * and all of it be at home, with nothing logged since. Only a later low frees it.
 */
int nvj_commit_running(struct nvj *j)
{
	return commit_until(j, nvj_load_sc(&j->running));
}

int nvj_commit(struct nvj *j, uint64_t tid)
{
	int error = nvj_commit_to(j, tid);

	/* Without workers someone must begin a checkpoint before the ring is full. */
	if (!error && nvj_load(&j->wanted) && !j->workers)
		error = nvj_checkpoint_wanted(j);
	return error;
}

uint64_t nvj_committed(const struct nvj *j)
{
	return nvj_load_sc(&j->committed);
}

uint64_t nvj_tail(const struct nvj *j)
{
	return nvj_load_sc(&j->tail);
}
