/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Reads superblock, tail and commit ring.
 *
 * After a crash, the slots after the tail can only have this form: first a run
 * of sealed slots without a gap, because seals are fenced one after the other;
 * then only "not yet". So a slot with "not yet" before a sealed one has lost
 * its seal. A slot with neither is damaged. Both are reported, and never
 * skipped.
 */
#include "scan.h"

void nvj_find(struct nvj_report *report, enum nvj_finding_kind kind, uint32_t partition,
	      uint64_t position, uint64_t offset)
{
	if (report->findings < NVJ_MAX_FINDINGS)
		report->finding[report->findings] = (struct nvj_finding){
			.kind = kind,
			.partition = partition,
			.position = position,
			.offset = offset,
		};
	report->findings++;
}

static void found_commit(const struct nvj_scan *s, struct nvj_report *report, uint64_t tid)
{
	nvj_find(report, NVJ_FOUND_COMMIT, 0, tid, nvj_offset_of_commit(&s->geometry, tid));
}

static int read_super_and_tail(struct nvj_scan *s, const struct nvj_region *region,
			       struct nvj_report *report)
{
	bool layout;
	int error = nvj_super_read(region, &s->super, &s->geometry, &s->super_damaged, &layout);

	if (error == NVJ_EUCLEAN)
		nvj_find(report, layout ? NVJ_FOUND_LAYOUT : NVJ_FOUND_SUPERS, 0, 0,
			 NVJ_SUPER_OFFSET);
	if (error)
		return error;
	if (s->super_damaged)
		nvj_find(report, NVJ_FOUND_SUPER, 0, 0,
			 s->super_damaged & 1 ? NVJ_SUPER_OFFSET : NVJ_SUPER_COPY_OFFSET);

	if (!nvj_tail_read(&s->geometry, &s->tail_tid, &s->tail_damaged)) {
		nvj_find(report, NVJ_FOUND_TAILS, 0, 0, NVJ_TAIL_OFFSET);
		return NVJ_EUCLEAN;
	}
	if (s->tail_damaged)
		nvj_find(report, NVJ_FOUND_TAIL, 0, 0,
			 s->tail_damaged & 1 ? NVJ_TAIL_OFFSET : NVJ_TAIL_COPY_OFFSET);
	report->tail_tid = s->tail_tid;
	return 0;
}

/*
 * Checks the bounds in a slot. Its positions continue those of the slots before
 * it, and cover no more of a ring than there is from the tail. An anchor starts
 * where the last commit ended. MERGED slots between them, whose successor is
 * missing, may have reached further. For the tail itself it sets low[].
 */
static bool bounds_possible(struct nvj_scan *s, bool is_tail)
{
	for (uint32_t i = 0; i < s->geometry.partitions; i++) {
		uint64_t low = s->slot.at[i].low, high = s->slot.at[i].high;

		if (low > high || high > NVJ_MAX_POSITION)
			return false;
		if (is_tail)
			s->low[i] = low;
		else if (s->slot.kind == NVJ_ANCHOR ? low < s->high[i]
						    : low < s->run_low[i] || high < s->run_high[i])
			return false;
		if (high - s->low[i] > s->geometry.ring_lines)
			return false;
		s->run_low[i] = low;
		s->run_high[i] = high;
	}
	return true;
}

/* tid is the last transaction that ends a group: reading ends at its high. */
static void ends_at(struct nvj_scan *s, uint64_t tid)
{
	s->last_tid = tid;
	for (uint32_t i = 0; i < s->geometry.partitions; i++)
		s->high[i] = s->run_high[i];
}

static void commit_from(struct nvj_scan *s, uint64_t first, uint64_t last)
{
	for (uint64_t n = first - s->tail_tid - 1; n <= last - s->tail_tid - 1; n++)
		s->committed[n / 64] |= UINT64_C(1) << n % 64;
	s->transactions += last - first + 1;
}

static int read_commits(struct nvj_scan *s, struct nvj_report *report)
{
	const struct nvj_geometry *g = &s->geometry;
	uint64_t tail = s->tail_tid,
		 open = tail + 1; /* the first transaction that is not decided */
	bool ended = false;
	uint32_t before = report->findings;

	/*
	 * The slot of the tail says where reading starts. It is not reused
	 * until the tail has moved.
	 */
	if (nvj_commit_read(g, tail, &s->slot) != NVJ_SLOT_SEALED || s->slot.kind == NVJ_MERGED ||
	    !bounds_possible(s, true)) {
		found_commit(s, report, tail);
		return NVJ_EUCLEAN;
	}
	s->sealed_tid = tail;
	ends_at(s, tail);

	for (uint64_t tid = tail + 1; tid < tail + g->commits; tid++) {
		enum nvj_slot_state state = nvj_commit_read(g, tid, &s->slot);

		if (state == NVJ_SLOT_NOT_YET) {
			ended = true;
			continue;
		}
		if (state == NVJ_SLOT_DAMAGED) {
			found_commit(s, report, tid);
			ended = true;
			continue;
		}
		if (ended) {
			/*
			 * The slot that ended the run is damaged, unless it was
			 * reported before.
			 */
			if (report->findings == before)
				found_commit(s, report, s->sealed_tid + 1);
			continue;
		}
		if (!bounds_possible(s, false)) {
			found_commit(s, report, tid);
			ended = true;
			continue;
		}
		s->sealed_tid = tid;
		switch (s->slot.kind) {
		case NVJ_COMMIT:
			commit_from(s, open, tid);
			ends_at(s, tid);
			open = tid + 1;
			break;
		case NVJ_ANCHOR:
			/*
			 * MERGED slots before it are missing the slot that
			 * would complete them.
			 */
			ends_at(s, tid);
			open = tid + 1;
			break;
		}
	}
	report->committed_tid = s->last_tid;
	report->transactions = s->transactions;
	report->clean = s->transactions == 0;
	return report->findings == before ? 0 : NVJ_EUCLEAN;
}

static size_t bitmap_bytes(const struct nvj_scan *s)
{
	return (s->geometry.commits + 63) / 64 * sizeof(uint64_t);
}

int nvj_scan_begin(const struct nvj_region *region, const struct nvj_platform *platform,
		   struct nvj_report *report, struct nvj_scan **scan)
{
	struct nvj_scan *s = platform->allocate(platform->context, sizeof(*s));
	int error;

	*scan = NULL;
	if (!s)
		return NVJ_ENOMEM;
	error = read_super_and_tail(s, region, report);
	if (!error) {
		/* commits was checked: it is at most 65536. */
		s->committed = platform->allocate(platform->context, bitmap_bytes(s));
		error = s->committed ? read_commits(s, report) : NVJ_ENOMEM;
	}
	if (error) {
		report->clean = false;
		nvj_scan_end(platform, s);
		return error;
	}
	*scan = s;
	return 0;
}

void nvj_scan_end(const struct nvj_platform *platform, struct nvj_scan *s)
{
	if (s->committed)
		platform->release(platform->context, s->committed, bitmap_bytes(s));
	platform->release(platform->context, s, sizeof(*s));
}
