/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Credits: the right to have lines under way. There are K in all, a quarter of a
 * ring. Each processor has a quota of them: the handles begun there may have so
 * many together, and so all handles never have more than K. A handle counts its
 * credits as it counts itself, then looks whether they fit, and if not takes the
 * count back. They say nothing of the room in a ring: when a handle has stopped,
 * all of its credits are free again, used or not.
 *
 * Quotas change under credit_lock. Who takes some from a processor's lowers the
 * quota first, then looks what is in use there; who starts a handle there counts
 * it first, then looks at the quota. All four are in one order: so either he who
 * starts finds them gone, or he who takes finds them used, and puts them back.
 */
#include "journal.h"

static uint64_t used(const struct nvj_cpu *c)
{
	return nvj_cpu_open(c) >> NVJ_CREDIT_SHIFT;
}

/* Takes up to most unused credits of a processor's quota. */
static uint64_t take_unused(struct nvj_cpu *c, uint64_t most)
{
	uint64_t quota = nvj_load(&c->quota);
	uint64_t in_use = used(c);
	uint64_t take;

	if (quota <= in_use)
		return 0;
	take = quota - in_use < most ? quota - in_use : most;
	nvj_store_sc(&c->quota, quota - take);
	in_use = used(c);
	if (in_use > quota - take) {
		uint64_t back = in_use - (quota - take);

		back = back < take ? back : take;
		take -= back;
		nvj_store_sc(&c->quota, quota - take);
	}
	return take;
}

bool nvj_credits_collect(struct nvj *j, unsigned cpu, uint64_t credits)
{
	struct nvj_cpu *c = &j->cpu[cpu];
	uint64_t quota = nvj_load(&c->quota);
	uint64_t need = used(c) + credits;
	uint64_t more;

	if (quota >= need)
		return true;
	need -= quota;
	more = need + j->credit_chunk < j->credits ? need + j->credit_chunk : j->credits;
	j->credits -= more;
	for (unsigned i = 0; i < NVJ_CPUS && more < need; i++)
		if (i != cpu)
			more += take_unused(&j->cpu[i], need - more);
	nvj_store_sc(&c->quota, quota + more);
	return more >= need;
}

int nvj_credits_find(struct nvj *j, unsigned cpu, uint64_t credits)
{
	while (!nvj_credits_collect(j, cpu, credits)) {
		uint32_t rings = nvj_attend(&j->credited);
		bool found = nvj_credits_collect(j, cpu, credits);
		bool aborted = nvj_load_sc(&j->aborted);

		if (!found && !aborted)
			j->platform.wait(j->platform.context, &j->credited.rings, rings,
					 nvj_ended_bell_ns(j));
		nvj_leave(&j->credited);
		if (found)
			break;
		if (aborted)
			return NVJ_EROFS;
	}
	return 0;
}
