/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Credits: a credit is the right to log one line. There are K credits in all, a
 * quarter of a ring. Each processor has a quota: the handles that start there
 * may have so many credits together. So all handles together never have more
 * than K. A handle adds its credits to the count when it counts itself, and
 * then checks whether they fit. If not, it removes them again. Credits say
 * nothing about the room in a ring: when a handle has stopped, all its credits
 * are free again, used or not.
 *
 * Quotas change under credit_lock. A thread that takes credits from a
 * processor's quota lowers the quota first, and then reads how many are in use.
 * A thread that starts a handle there counts it first, and then reads the
 * quota. All four accesses have one order. So either the starting thread sees
 * the lower quota, or the taking thread sees the credits in use and returns
 * them.
 */
#include "journal.h"

static uint64_t used(const struct nvj *j, const struct nvj_cpu *c)
{
	return nvj_cpu_open(j, c) >> NVJ_CREDIT_SHIFT;
}

/* Takes at most `most` unused credits from a processor's quota. */
static uint64_t take_unused(const struct nvj *j, struct nvj_cpu *c, uint64_t most)
{
	uint64_t quota = nvj_load(&c->quota);
	uint64_t in_use = used(j, c);
	uint64_t take;

	if (quota <= in_use)
		return 0;
	take = quota - in_use < most ? quota - in_use : most;
	nvj_store_sc(&c->quota, quota - take);
	in_use = used(j, c);
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
	uint64_t need = used(j, c) + credits;
	uint64_t more;

	if (quota >= need)
		return true;
	need -= quota;
	more = need + j->credit_chunk < j->credits ? need + j->credit_chunk : j->credits;
	j->credits -= more;
	for (unsigned i = 0; i < NVJ_CPUS && more < need; i++)
		if (i != cpu)
			more += take_unused(j, &j->cpu[i], need - more);
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
