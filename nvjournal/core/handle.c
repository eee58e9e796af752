/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Start and stop of a handle. A handle counts itself on its processor. There
 * are two counters for each live transaction: started and ended. No cache line is
 * shared with another processor for this.
 */
#include "journal.h"

void nvj_count_started(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits)
{
	struct nvj_cpu *c = &j->cpu[cpu];
	uint64_t one = nvj_counted(credits);

	if ((uint32_t)nvj_add_sc(&c->started[tid & (NVJ_SLOTS - 1)], one) == UINT32_MAX)
		nvj_count(&c->started_4g, 1);
}

/*
 * Counts a handle and its credits in the running transaction, *tid. False: it
 * was closed meanwhile, and nvj_count_back must remove the count.
 */
static NVJ_INLINED bool count_once(struct nvj *j, unsigned cpu, uint64_t credits, uint64_t *tid)
{
	uint32_t cpus = nvj_load_sc(&j->cpus);

	/*
	 * Before the count itself: a thread that adds up the counts after a
	 * close reads it.
	 */
	while (NVJ_UNLIKELY(cpus <= cpu) && !nvj_replace_sc(&j->cpus, &cpus, cpu + 1))
		;
	*tid = nvj_load_sc(&j->running);
	/*
	 * This thread stores started and then loads running. The thread that
	 * closes stores running and then loads started. All four have one order.
	 * So either it sees our count, or we see that the transaction is closed.
	 */
	nvj_count_started(j, cpu, *tid, credits);
	return NVJ_LIKELY(nvj_load_sc(&j->running) == *tid);
}

uint64_t nvj_count_in(struct nvj *j, unsigned cpu, uint64_t credits)
{
	uint64_t tid;

	while (!count_once(j, cpu, credits, &tid))
		nvj_count_back(j, cpu, tid, credits);
	return tid;
}

/*
 * How long, in nanoseconds, a thread sleeps on a bell that may be missed. After
 * a plain addition, this thread may check for waiting threads before the others
 * see its count.
 */
#define MISSED_NS UINT64_C(50000)

uint64_t nvj_ended_bell_ns(const struct nvj *j)
{
	return j->platform.add_here ? MISSED_NS : NVJ_SAFETY_NS;
}

static NVJ_INLINED void ring_bells(struct nvj *j)
{
	nvj_ring_bell(&j->drained, &j->platform);
	nvj_ring_bell(&j->credited, &j->platform);
}

static NVJ_INLINED void count_out(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits)
{
	const struct nvj_platform *platform = &j->platform;
	struct nvj_cpu *c = &j->cpu[cpu];
	unsigned slot = tid & (NVJ_SLOTS - 1);
	uint64_t one = nvj_counted(credits);

	/*
	 * The flags, marks and merge_to of the handle were stored before. A
	 * thread that sees all handles as ended sees these, too. An atomic
	 * addition here would wait until the flags are in the cache, and the
	 * next handle would wait for it.
	 */
	if (!platform->add_here ||
	    !platform->add_here(platform->context, cpu, &c->ended_here[slot], one))
		nvj_add_sc(&c->ended[slot], one);
	ring_bells(j);
}

void nvj_count_out(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits)
{
	count_out(j, cpu, tid, credits);
}

void nvj_count_back(struct nvj *j, unsigned cpu, uint64_t tid, uint64_t credits)
{
	nvj_count(&j->cpu[cpu].not_started, 1);
	nvj_count_out(j, cpu, tid, credits);
}

/*
 * As in nvj_cpu_open: if the sums are equal, no handle was open at the moment
 * between.
 */
bool nvj_handles_ended(const struct nvj *j, uint64_t tid)
{
	unsigned slot = tid & (NVJ_SLOTS - 1);
	unsigned cpus = nvj_load_sc(&j->cpus);
	uint64_t open = 0;

	for (unsigned i = 0; i < cpus; i++)
		open -= nvj_cpu_ended(j, &j->cpu[i], slot);
	for (unsigned i = 0; i < cpus; i++)
		open += nvj_load_sc(&j->cpu[i].started[slot]);
	return open == 0;
}

bool nvj_handles_open(const struct nvj *j)
{
	for (uint64_t slot = 0; slot < NVJ_SLOTS; slot++)
		if (!nvj_handles_ended(j, slot))
			return true;
	return false;
}

bool nvj_handles_drained(struct nvj *j, uint64_t tid, unsigned *cpu)
{
	unsigned slot = tid & (NVJ_SLOTS - 1), cpus = nvj_load_sc(&j->cpus);

	/*
	 * A handle is counted in both counters of the same processor. A thread
	 * that comes too late adds 1 to both.
	 */
	for (; *cpu < cpus; ++*cpu) {
		const struct nvj_cpu *c = &j->cpu[*cpu];
		uint64_t ended = nvj_cpu_ended(j, c, slot);

		if (nvj_load_sc(&c->started[slot]) != ended)
			return false;
	}
	return true;
}

/* A handle has started, or why it has not: its transaction was closed, hold, the credits. */
enum outcome { STARTED, CLOSED, HELD, SHORT };

/*
 * One attempt. If it fails, the handle is counted, and nvj_count_back must remove
 * the count. *hold is the reason for HELD.
 */
static NVJ_INLINED enum outcome attempt(struct nvj *j, struct nvj_handle *h, uint32_t credits,
					uint32_t *hold)
{
	if (NVJ_UNLIKELY(!count_once(j, h->cpu, credits, &h->tid)))
		return CLOSED;
	/*
	 * First the credits, then hold. In the other order a handle could pass
	 * hold before TIGHT is raised, and then get the credits of a handle
	 * that logged after that: see room.c. For GATE see commit.c.
	 */
	if (NVJ_UNLIKELY(!nvj_credits_fit(j, &j->cpu[h->cpu])))
		return SHORT;
	*hold = nvj_load_sc(&j->hold);
	return NVJ_LIKELY(!(*hold & NVJ_HOLD_BITS)) ? STARTED : HELD;
}

/* Attempts until the result is not CLOSED. If it fails, it leaves no trace. */
static enum outcome begin(struct nvj *j, struct nvj_handle *h, uint32_t credits, uint32_t *hold)
{
	enum outcome outcome;

	do {
		outcome = attempt(j, h, credits, hold);
		if (outcome != STARTED)
			nvj_count_back(j, h->cpu, h->tid, credits);
	} while (outcome == CLOSED);
	return outcome;
}

/*
 * Waits for the credits. The first thread gets them first, because it has the
 * lock.
 */
static int begin_when_found(struct nvj *j, struct nvj_handle *h, uint32_t credits, uint32_t *hold,
			    enum outcome *outcome, bool *waited)
{
	int error = 0;

	nvj_lock(&j->credit_lock, &j->platform);
	do {
		if (!nvj_credits_collect(j, h->cpu, credits)) {
			*waited = true;
			error = nvj_credits_find(j, h->cpu, credits);
		}
		if (!error)
			*outcome = begin(j, h, credits, hold);
	} while (!error && *outcome == SHORT);
	nvj_unlock(&j->credit_lock, &j->platform);
	return error;
}

static NVJ_INLINED void set_started(struct nvj *j, struct nvj_handle *h, uint32_t credits)
{
	h->journal = j;
	h->credits = h->taken = credits;
	h->placed = h->kept_lines = h->later = 0;
	h->last = NULL;
}

/* An attempt had this outcome; its count was removed. */
static NVJ_RARE int start_slowly(struct nvj *j, struct nvj_handle *h, uint32_t credits,
				 uint32_t hold, enum outcome outcome)
{
	uint64_t began = j->platform.now_ns(j->platform.context);
	bool waited = false;
	int error = 0;

	if (outcome == CLOSED) {
		nvj_let_drain(j, &j->cpu[h->cpu]);
		outcome = begin(j, h, credits, &hold);
	}
	while (!error && outcome != STARTED) {
		if (outcome == SHORT) {
			error = begin_when_found(j, h, credits, &hold, &outcome, &waited);
			continue;
		}
		waited = true;
		if (hold & NVJ_HOLD_ABORTED)
			return NVJ_EROFS;
		nvj_let_open(j, hold);
		nvj_room_wait(j, hold);
		h->cpu = j->platform.cpu(j->platform.context) % NVJ_CPUS;
		outcome = begin(j, h, credits, &hold);
	}
	if (waited) {
		nvj_count(&j->start_waits, 1);
		nvj_count(&j->start_wait_ns, j->platform.now_ns(j->platform.context) - began);
	}
	if (!error)
		set_started(j, h, credits);
	return error;
}

/* An attempt has failed. */
static NVJ_RARE int start_again(struct nvj *j, struct nvj_handle *h, uint32_t credits,
				uint32_t hold, enum outcome outcome)
{
	nvj_count_back(j, h->cpu, h->tid, credits);
	return start_slowly(j, h, credits, hold, outcome);
}

int nvj_start_on(struct nvj *j, struct nvj_handle *h, uint32_t credits, unsigned cpu)
{
	enum outcome outcome;
	uint32_t hold = 0;

	if (NVJ_UNLIKELY(credits > nvj_max_credits(j)))
		return NVJ_ENOSPC;
	h->cpu = cpu % NVJ_CPUS;
	/* A thread that waits for credits comes before later threads. */
	if (NVJ_UNLIKELY(nvj_load(&j->credited.waiting)))
		return start_slowly(j, h, credits, hold, SHORT);
	if (NVJ_UNLIKELY(nvj_load(&j->draining)))
		nvj_let_drain(j, &j->cpu[h->cpu]);
	outcome = attempt(j, h, credits, &hold);
	if (NVJ_UNLIKELY(outcome != STARTED))
		return start_again(j, h, credits, hold, outcome);
	set_started(j, h, credits);
	return 0;
}

int nvj_start(struct nvj *j, struct nvj_handle *h, uint32_t credits)
{
	return nvj_start_on(j, h, credits, j->platform.cpu(j->platform.context));
}

uint32_t nvj_max_credits(const struct nvj *j)
{
	return j->max_credits - j->later_most;
}

/*
 * The owner of the lock may sleep with it. So a caller that must not wait does
 * not take it.
 */
static bool fit_at_once(struct nvj *j, unsigned cpu)
{
	bool fit;

	if (nvj_credits_fit(j, &j->cpu[cpu]))
		return true;
	if (!nvj_try_lock(&j->credit_lock))
		return false;
	fit = nvj_credits_collect(j, cpu, 0);
	nvj_unlock(&j->credit_lock, &j->platform);
	return fit;
}

int nvj_extend(struct nvj_handle *h, uint32_t credits)
{
	struct nvj *j = h->journal;
	struct nvj_cpu *c = &j->cpu[h->cpu];
	unsigned slot = h->tid & (NVJ_SLOTS - 1);
	uint64_t more = (uint64_t)credits << NVJ_CREDIT_SHIFT;
	uint32_t hold;
	bool fit;

	if (credits > nvj_max_credits(j) - h->taken)
		return NVJ_ENOSPC;
	nvj_add_sc(&c->started[slot], more);
	/* As in nvj_start: first the credits, then hold. */
	fit = fit_at_once(j, h->cpu);
	hold = nvj_load_sc(&j->hold);
	if (!fit || hold & (NVJ_HOLD_TIGHT | NVJ_HOLD_ABORTED)) {
		nvj_add_sc(&c->ended[slot], more);
		nvj_ring_bell(&j->credited, &j->platform);
		return hold & NVJ_HOLD_ABORTED ? NVJ_EROFS : NVJ_EAGAIN;
	}
	h->credits += credits;
	h->taken += credits;
	return 0;
}

static NVJ_INLINED void set_flags(struct nvj_handle *h)
{
	struct nvj *j = h->journal;

	/* All lines of these records are persistent before any flag says so. */
	nvj_fence(j);
	for (uint32_t i = 0; i < h->placed; i++)
		nvj_flag(j, &j->partition[h->partition[i]], h->position[i] >> 8,
			 h->position[i] & 255);
	h->placed = 0;
}

void nvj_handle_set_flags(struct nvj_handle *h)
{
	set_flags(h);
}

static inline bool is_dirty_on(const struct nvj_cpu *c, uint64_t tid)
{
	return nvj_load_acquire(&c->dirty[tid & (NVJ_SLOTS - 1)]) == tid;
}

bool nvj_is_dirty(struct nvj *j, unsigned cpu, uint64_t tid)
{
	unsigned cpus = nvj_load_sc(&j->cpus);

	if (is_dirty_on(&j->cpu[cpu], tid))
		return true;
	for (unsigned i = 0; i < cpus; i++)
		if (is_dirty_on(&j->cpu[i], tid))
			return true;
	return false;
}

static NVJ_RARE uint64_t stop_slowly(struct nvj_handle *h)
{
	struct nvj *j = h->journal;
	uint64_t tid = h->tid;
	/*
	 * As long as nothing is logged in a transaction, nvj_commit does not
	 * close it. So the caller of this handle has to wait for the
	 * transaction before. The exception: a change was refused, and will
	 * never be committed.
	 */
	bool empty = !NVJ_LIKELY(is_dirty_on(&j->cpu[h->cpu], tid)) &&
		     !nvj_is_dirty(j, h->cpu, tid) && !nvj_load(&j->aborted);

	/* An error aborts the journal, and nvj_commit says so. */
	if (h->kept_lines)
		(void)nvj_handle_write(h);
	if (h->placed)
		set_flags(h);
	count_out(j, h->cpu, tid, h->taken);
	h->journal = NULL;
	return empty ? tid - 1 : tid;
}

static NVJ_RARE uint64_t stopped(struct nvj *j, uint64_t tid)
{
	ring_bells(j);
	return tid;
}

/*
 * The usual handle of a kernel has left all its changes to the commit (later.c). For it
 * this function calls no other one, and so it saves no registers.
 */
uint64_t nvj_stop(struct nvj_handle *h)
{
	struct nvj *j = h->journal;
	struct nvj_cpu *c = &j->cpu[h->cpu];
	uint64_t tid = h->tid;

	if (h->kept_lines || h->placed || j->platform.add_here || !is_dirty_on(c, tid))
		return stop_slowly(h);
	nvj_add_sc(&c->ended[tid & (NVJ_SLOTS - 1)], nvj_counted(h->taken));
	h->journal = NULL;
	if (NVJ_UNLIKELY(nvj_load_sc(&j->drained.waiting) || nvj_load_sc(&j->credited.waiting)))
		return stopped(j, tid);
	return tid;
}
