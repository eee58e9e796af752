/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Who commits: the threads that call nvj_commit. One of them becomes the leader and
 * commits (commit.c). The others follow: they wait for its bell.
 */
#include "journal.h"
#include "spin.h"

/* How often a follower checks before it sleeps. */
#define LOOKS 200
/* It checks after so many checks whether there is still a leader. */
#define LOOKS_EACH_LEADER 8
/* It yields its processor after so many checks. */
#define LOOKS_EACH_YIELD 16
/*
 * If it is alone on its processor, it checks for two more commits, or for this
 * time, in nanoseconds, if that is shorter; then it sleeps.
 */
#define FOLLOW_NS UINT64_C(100000)

static int lead(struct nvj *j, uint64_t tid)
{
	int error = 0;

	while (!error && nvj_load_sc(&j->committed) < tid)
		error = nvj_load_sc(&j->aborted) ? nvj_aborted(j) : nvj_commit_group(j);
	/*
	 * Sequentially consistent with the followers, who count themselves and
	 * then check. So a follower sees this store, and the commits before it,
	 * or the leader rings its bell. A thread that comes after the last
	 * commit becomes the leader.
	 */
	nvj_store_sc(&j->leading, 0);
	nvj_ring_bell(&j->followers, &j->platform);
	return error;
}

/*
 * The commit of another thread may have included tid: then *done is set.
 * Otherwise, if there is no leader, the caller becomes the leader and the
 * result is true.
 */
static bool take_lead(struct nvj *j, uint64_t tid, bool *done)
{
	uint32_t nobody = 0;

	*done = nvj_load_sc(&j->committed) >= tid;
	return !*done && !nvj_load_sc(&j->leading) && nvj_replace_sc(&j->leading, &nobody, 1);
}

/* How long a follower checks. If commits take longer, it sleeps at once. */
static uint64_t follow_ns(const struct nvj *j)
{
	uint64_t ns = nvj_load(&j->commit_ns);

	if (ns > FOLLOW_NS)
		return 0;
	return 2 * ns < FOLLOW_NS ? 2 * ns : FOLLOW_NS;
}

/*
 * Waits until the commit of another thread includes tid, or there is no leader.
 * True: the caller becomes the leader. A commit takes less time than sleeping
 * and waking, so it checks a few times first.
 */
static bool follow(struct nvj *j, uint64_t tid)
{
	uint64_t seen = nvj_load_sc(&j->committed);
	struct nvj_spin spin;
	bool done, leads;

	for (int i = 0; i < LOOKS; i++) {
		uint64_t committed = nvj_load_sc(&j->committed);

		if (committed >= tid)
			return false;
		/*
		 * There may be no leader after a commit. Otherwise its line is
		 * left to those who change it.
		 */
		if (committed != seen || i % LOOKS_EACH_LEADER == LOOKS_EACH_LEADER - 1) {
			leads = take_lead(j, tid, &done);
			if (done || leads)
				return leads;
		}
		seen = committed;
		if (i % LOOKS_EACH_YIELD == LOOKS_EACH_YIELD - 1 && j->platform.yield)
			j->platform.yield(j->platform.context);
		else
			nvj_relax();
	}
	spin = nvj_spin_for(&j->platform, follow_ns(j));
	while (nvj_spin_on(&j->platform, &spin)) {
		leads = take_lead(j, tid, &done);
		if (done || leads)
			return leads;
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

static unsigned cpu_of_caller(struct nvj *j)
{
	return j->platform.cpu(j->platform.context) % NVJ_CPUS;
}

/* Leads a commit, or waits for the leader, until tid is committed. */
static int commit_until(struct nvj *j, uint64_t tid)
{
	bool done;

	if (take_lead(j, tid, &done) || (!done && follow(j, tid)))
		return lead(j, tid);
	if (done)
		return 0;
	nvj_count(&j->cpu[cpu_of_caller(j)].commits_waited, 1);
	return 0;
}

/*
 * Whether nothing was logged in the running transaction. An open handle may have changed
 * blocks that it logs later: so all must have ended, unless the caller asks for what was
 * stopped before only. A handle is counted as ended after it has logged.
 */
static bool nothing_logged(struct nvj *j, uint64_t tid, bool stopped_only)
{
	unsigned cpu = cpu_of_caller(j);

	if (nvj_is_dirty(j, cpu, tid))
		return false;
	return stopped_only || (nvj_handles_ended(j, tid) && !nvj_is_dirty(j, cpu, tid));
}

int nvj_commit_to(struct nvj *j, uint64_t tid)
{
	uint64_t running = nvj_load_sc(&j->running);
	bool stopped_only = tid == 0;

	if (tid > running)
		return NVJ_EINVAL;
	if (stopped_only)
		tid = running;
	if (tid == running && nothing_logged(j, tid, stopped_only)) {
		/*
		 * A transaction in which nothing was logged need not be closed.
		 * But if the journal was aborted, a change may have been
		 * refused.
		 */
		int error = commit_until(j, tid - 1);

		return error ? error : nvj_aborted(j);
	}
	return commit_until(j, tid);
}

/*
 * The room is counted from the low of the tail, which was read shortly before
 * its transaction closed. If that took long, most of the ring may have been
 * filled after low. All of that may be at home, with nothing logged since. Only
 * a later low frees it.
 */
int nvj_commit_running(struct nvj *j)
{
	return commit_until(j, nvj_load_sc(&j->running));
}

int nvj_commit(struct nvj *j, uint64_t tid)
{
	int error = nvj_commit_to(j, tid);

	/*
	 * Without workers, the caller must start a checkpoint before the ring
	 * is full.
	 */
	if (!error && nvj_load(&j->wanted) && !j->workers)
		error = nvj_checkpoint_wanted(j);
	return error;
}

uint64_t nvj_committed(const struct nvj *j)
{
	return nvj_load_sc(&j->committed);
}

uint64_t nvj_running(const struct nvj *j)
{
	return nvj_load_sc(&j->running);
}

uint64_t nvj_tail(const struct nvj *j)
{
	return nvj_load_sc(&j->tail);
}
