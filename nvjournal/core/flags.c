/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Which records are whole: the flags (paper 3, Fig. 2, line 6; paper 4, Fig. 3,
 * line 18) and last_check (paper 4, Fig. 3, lines 16 to 22). A thread that
 * reads the flags moves last_check forward for all threads. A commit need not
 * read flags if no handle is open (commit.c). Then the commit alone says which
 * records are whole.
 */
#include "journal.h"

/*
 * After so many records, a thread that reads flags stores its position for the
 * others.
 */
#define TELL 64u
/* An idle commit worker checks again after this time, and later less often. */
#define PAUSE_NS UINT64_C(1000000)
#define LONGEST_PAUSE_NS UINT64_C(64000000)

/*
 * Returns a position before which all records are whole: a thread has checked
 * them, or the last commit covers them. The low may be that of the commit one
 * lap of the commit ring later. That is valid, because its records were
 * awaited, too.
 */
static uint64_t whole_before(struct nvj *j, struct nvj_partition *p)
{
	uint64_t low = nvj_load(&nvj_lows(j, nvj_load_sc(&j->committed))[p->index]);
	uint64_t checked = nvj_load_acquire(&p->last_check);

	return low > checked ? low : checked;
}

bool nvj_flags_follow(struct nvj *j, struct nvj_partition *p, uint64_t to)
{
	uint64_t at = whole_before(j, p);
	unsigned passed = 0;

	while (at < to) {
		/* Acquire: after the fence that made the record persistent. */
		uint64_t flag = nvj_load_acquire(nvj_flag_at(j, p, at));

		if (flag >> 8 == at && (flag & 255)) {
			at += flag & 255;
			if (++passed % TELL == 0)
				nvj_raise_sc(&p->last_check, at);
		} else if (flag >> 8 > at) {
			/*
			 * The flag is of a later lap, and the line was reused.
			 * So the old record was committed long ago, and other
			 * threads have passed it.
			 */
			uint64_t now = whole_before(j, p);

			if (now <= at)
				return false; /* impossible; never loop for ever */
			at = now;
		} else {
			break; /* not yet */
		}
	}
	if (passed)
		nvj_raise_sc(&p->last_check, at);
	return at >= to;
}

void nvj_commit_worker(struct nvj *j, unsigned partition)
{
	struct nvj_partition *p = &j->partition[partition];
	uint64_t pause_ns = PAUSE_NS;

	while (!nvj_load_sc(&j->stopping)) {
		uint64_t before = nvj_load(&p->last_check);

		(void)nvj_flags_follow(j, p, nvj_load_sc(&p->head));
		if (nvj_load(&p->last_check) != before) {
			pause_ns = PAUSE_NS;
			continue;
		}
		j->platform.wait(j->platform.context, &j->stopping, 0, pause_ns);
		if (pause_ns < LONGEST_PAUSE_NS)
			pause_ns *= 2;
	}
}
