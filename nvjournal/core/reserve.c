/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Reservations: a handle leaves credits to another handle, which must start
 * without waiting. These credits are counted in reserved, on the processor on
 * which the first handle started. So a handle that starts with them cannot
 * overwrite a ring, even if TIGHT is raised: its credits were counted before
 * (room.c).
 */
#include "journal.h"

/*
 * How often a thread that finds the gate shut, and may not join, checks before
 * it sleeps.
 */
#define LOOKS 100

int nvj_reserve(struct nvj_handle *h, struct nvj_reserved *r, uint32_t credits)
{
	struct nvj *j = h->journal;
	struct nvj_cpu *c = &j->cpu[h->cpu];

	if (credits > h->credits)
		return NVJ_ENOSPC;
	*r = (struct nvj_reserved){.journal = j, .credits = credits, .cpu = h->cpu};
	/*
	 * Added to reserved before it is removed from the handle: see
	 * nvj_cpu_open.
	 */
	nvj_add_sc(&c->reserved, nvj_counted(credits));
	nvj_add_sc(&c->ended[h->tid & (NVJ_SLOTS - 1)], (uint64_t)credits << NVJ_CREDIT_SHIFT);
	h->credits -= credits;
	h->taken -= credits;
	/* A thread that checked meanwhile found too few credits. */
	nvj_ring_bell(&j->credited, &j->platform);
	return 0;
}

void nvj_unreserve(struct nvj_reserved *r)
{
	struct nvj *j = r->journal;

	nvj_sub_sc(&j->cpu[r->cpu].reserved, nvj_counted(r->credits));
	nvj_ring_bell(&j->credited, &j->platform);
	r->journal = NULL;
}

/*
 * Joins the last transaction of a group, which may be closed: see close_last.
 */
static bool join(struct nvj *j, struct nvj_handle *h, uint32_t credits)
{
	uint64_t tid = nvj_load_sc(&j->joinable);

	if (!tid)
		return false;
	nvj_count_started(j, h->cpu, tid, credits);
	if (nvj_load_sc(&j->joinable) == tid) {
		h->tid = tid;
		return true;
	}
	nvj_count_back(j, h->cpu, tid, credits);
	return false;
}

/*
 * Joins the running transaction. If the gate is shut before, it joins the
 * transaction that closes.
 */
static void enter(struct nvj *j, struct nvj_handle *h, uint32_t credits)
{
	for (int looks = 0;; looks++) {
		uint32_t hold;

		h->tid = nvj_count_in(j, h->cpu, credits);
		hold = nvj_load_sc(&j->hold);
		/*
		 * After an abort nothing is committed, so any transaction will
		 * do.
		 */
		if (hold & NVJ_HOLD_ABORTED)
			return;
		if (!(hold & NVJ_HOLD_GATE) || h->tid <= nvj_load_sc(&j->gate_tid))
			return;
		nvj_count_back(j, h->cpu, h->tid, credits);
		if (join(j, h, credits))
			return;
		/*
		 * The leader is about to open the gate, or to allow joining
		 * again.
		 */
		if (looks < LOOKS)
			nvj_relax();
		else
			j->platform.wait(j->platform.context, &j->hold, hold, NVJ_SAFETY_NS);
	}
}

int nvj_start_reserved(struct nvj_reserved *r, struct nvj_handle *h)
{
	struct nvj *j = r->journal;
	uint32_t credits = r->credits;

	h->cpu = r->cpu;
	/* No credits are needed. Of hold, only the gate is checked. */
	enter(j, h, credits);
	nvj_unreserve(r);
	if (nvj_load_sc(&j->aborted)) {
		nvj_count_back(j, h->cpu, h->tid, credits);
		return NVJ_EROFS;
	}
	h->journal = j;
	h->credits = h->taken = credits;
	h->placed = h->kept_lines = h->later = 0;
	h->last = NULL;
	return 0;
}
