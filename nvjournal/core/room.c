/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What happens when a ring is nearly full. The limit of a ring is K lines, and
 * some slack, before its end. The handle whose record goes beyond the limit
 * raises TIGHT before nvj_log returns. A handle checks hold after it has its
 * credits. So all records beyond the limit are of handles that had their
 * credits when TIGHT was first raised: handles that logged beyond the limit
 * before that have not returned from nvj_log, and the same holds for all others
 * that passed hold. All credits together are K. So no ring is ever overwritten,
 * whatever ring the records go to.
 *
 * TIGHT is cleared only by a compare-and-swap. It fails if a thread has raised
 * TIGHT since the rings were checked, because each raise also increases a
 * number.
 */
#include "journal.h"

static void raise_tight(struct nvj *j)
{
	uint32_t hold = nvj_load_sc(&j->hold);

	while (!nvj_replace_sc(&j->hold, &hold, (hold + NVJ_HOLD_RAISE) | NVJ_HOLD_TIGHT))
		;
}

static void want_checkpoint(struct nvj *j)
{
	if (nvj_load(&j->wanted))
		return;
	nvj_store_sc(&j->wanted, 1);
	nvj_ring_bell(&j->work, &j->platform);
}

void nvj_room_slots(struct nvj *j, uint64_t used)
{
	uint64_t most = (uint64_t)j->geometry.commits * j->checkpoint_percent / 100;

	/* A round that is active frees slots when it ends. */
	if (used > most && !nvj_load_sc(&j->round_active))
		want_checkpoint(j);
}

int nvj_room_alarm(struct nvj *j, struct nvj_partition *p, uint64_t head)
{
	if (head > nvj_load_sc(&p->end)) {
		/*
		 * The number of credits is wrong. Better no journal than a
		 * damaged one.
		 */
		nvj_abort_at(j, NVJ_EROFS, NVJ_NO_BLOCK);
		return NVJ_EROFS;
	}
	if (head > nvj_load_sc(&p->limit)) {
		raise_tight(j);
		/*
		 * The limit may have moved, and TIGHT may have been reviewed,
		 * between our check and our raise. A thread that moves the
		 * limit after this check sees TIGHT raised when it reviews it.
		 */
		if (head <= nvj_load_sc(&p->limit))
			nvj_room_review(j);
		want_checkpoint(j);
	} else if (head > nvj_load_sc(&p->half)) {
		want_checkpoint(j);
	}
	return 0;
}

void nvj_room_review(struct nvj *j)
{
	uint32_t hold = nvj_load_sc(&j->hold);

	while (hold & NVJ_HOLD_TIGHT) {
		for (unsigned i = 0; i < j->partitions; i++)
			if (nvj_load_sc(&j->partition[i].head) >
			    nvj_load_sc(&j->partition[i].limit))
				return;
		if (nvj_replace_sc(&j->hold, &hold, hold & ~NVJ_HOLD_TIGHT)) {
			j->platform.wake(j->platform.context, &j->hold);
			return;
		}
	}
}

void nvj_room_moved(struct nvj *j, const uint64_t *lows)
{
	uint64_t ring = j->geometry.ring_lines;

	for (unsigned i = 0; i < j->partitions; i++) {
		struct nvj_partition *p = &j->partition[i];
		uint64_t half = lows[i] + ring * j->checkpoint_percent / 100;
		uint64_t limit = lows[i] + ring - j->max_credits - NVJ_SLACK_LINES;

		nvj_store_sc(&p->end, lows[i] + ring);
		nvj_store_sc(&p->limit, limit);
		nvj_store_sc(&p->half, half);
		nvj_store_sc(&p->alarm, half < limit ? half : limit);
	}
	nvj_room_review(j);
	/* The records that fill a ring were not committed: try again. */
	if (nvj_load_sc(&j->hold) & NVJ_HOLD_TIGHT)
		want_checkpoint(j);
}

void nvj_room_wait(struct nvj *j, uint32_t hold)
{
	bool others = j->workers && !nvj_load_sc(&j->stopping);

	if (hold & NVJ_HOLD_TIGHT && others)
		want_checkpoint(j);
	if (!(hold & NVJ_HOLD_TIGHT) || others) {
		j->platform.wait(j->platform.context, &j->hold, hold, NVJ_SAFETY_NS);
		return;
	}
	/* Errors abort the journal, and hold says so. */
	(void)nvj_checkpoint_wanted(j);
}

bool nvj_room_wants_commit(struct nvj *j)
{
	const uint64_t *lows;

	lows = nvj_lows(j, nvj_load_sc(&j->committed));
	for (unsigned i = 0; i < j->partitions; i++) {
		uint64_t open = nvj_load_sc(&j->partition[i].head) - nvj_load(&lows[i]);

		if (open > j->geometry.ring_lines * j->checkpoint_percent / 200)
			return true;
	}
	return false;
}
