// SPDX-License-Identifier: GPL-2.0
/*
 * Reserved handles: reserved together with another handle, and started later by
 * any thread without waiting. A commit may wait for them, because file data are
 * on the disk only when the handle at the end of its write has ended. So a
 * thread that holds back all handles (updates.c) does not hold them back. It
 * waits until they have ended; no new ones can be reserved meanwhile.
 *
 * They are counted as the engine counts handles: all accesses to the counts have one
 * order. So a thread that sees no reserved handle sees all that they have changed, too.
 *
 * All together have at most half of the credits, as in jbd2: a reserved handle keeps its
 * credits until the disk has written the data, and other handles must not wait for that.
 */
#include <linux/sched/mm.h>

#include "journal.h"

static bool get_share(struct nvjk_journal *j, u32 credits)
{
	u32 now = nvj_load_sc(&j->reserved_credits);

	do
		if (now + credits > j->max_credits / 2)
			return false;
	while (!nvj_replace_sc(&j->reserved_credits, &now, now + credits));
	return true;
}

void nvjk_reserve_await(struct nvjk_journal *j, u32 credits)
{
	wait_event(j->reserved_wait, get_share(j, credits));
}

void nvjk_reserve_back(struct nvjk_journal *j, u32 credits)
{
	nvj_sub_sc(&j->reserved_credits, credits);
	wake_up_all(&j->reserved_wait);
}

int nvjk_reserve(struct nvjk_handle *handle, struct nvjk_handle *reserved, u32 credits)
{
	struct nvjk_journal *j = nvjk_of(handle->handle.h_journal);
	int error = nvj_reserve(&handle->nvj, &reserved->reserved, credits);
	int *count;

	if (error)
		return error;
	reserved->counted_reserved = true;
	count = raw_cpu_ptr(j->reserved);
	nvj_add_sc(count, 1);
	return 0;
}

void nvjk_reserved_ended(struct nvjk_journal *j)
{
	int *count = raw_cpu_ptr(j->reserved);

	/* Either the waiting thread sees the count, or this thread sees that it waits. */
	nvj_sub_sc(count, 1);
	nvjk_updates_ended(j);
}

/* Meanwhile only ends are counted. So if the sum is 0, all have ended. */
bool nvjk_any_reserved(struct nvjk_journal *j)
{
	int sum = 0;
	int cpu;

	for_each_possible_cpu(cpu) sum += nvj_load_sc(per_cpu_ptr(j->reserved, cpu));
	return sum != 0;
}

void jbd2_journal_free_reserved(handle_t *handle)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j = nvjk_of(handle->h_journal);

	WARN_ON_ONCE(!handle->h_reserved);
	nvj_unreserve(&h->reserved);
	nvjk_reserve_back(j, h->reserved.credits);
	nvjk_reserved_ended(j);
	nvjk_handle_free(h);
}

/* After an error the handle does not exist any more. */
int jbd2_journal_start_reserved(handle_t *handle, unsigned int type, unsigned int line)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j = nvjk_of(handle->h_journal);
	int error;

	if (WARN_ON(!handle->h_reserved))
		return -EIO;
	if (WARN_ON(current->journal_info)) {
		/* A thread has at most one handle, so this one is released. */
		jbd2_journal_free_reserved(handle);
		return -EIO;
	}
	handle->h_reserved = 0;
	handle->h_type = type;
	handle->h_line_no = line;
	h->nofs = memalloc_nofs_save();
	error = nvj_start_reserved(&h->reserved, &h->nvj);
	nvjk_reserve_back(j, h->reserved.credits);
	if (error) {
		memalloc_nofs_restore(h->nofs);
		nvjk_reserved_ended(j);
		nvjk_handle_free(h);
		return error;
	}
	nvjk_handle_started(h);
	return 0;
}
