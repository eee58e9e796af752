// SPDX-License-Identifier: GPL-2.0
/*
 * Reserved handles: set aside with another handle, started later by any thread,
 * without waiting. A commit may be waiting for them: file data is on the disk only
 * when the handle at the end of its write has ended. So they are no readers of
 * updates, which a thread that holds all handles back has locked; he waits for
 * them instead, who cannot become more meanwhile.
 */
#include <linux/sched/mm.h>

#include "journal.h"

int nvjk_reserve(struct nvjk_handle *handle, struct nvjk_handle *reserved, u32 credits)
{
	struct nvjk_journal *j = nvjk_of(handle->handle.h_journal);
	int error = nvj_reserve(&handle->nvj, &reserved->reserved, credits);

	if (error)
		return error;
	reserved->counted_reserved = true;
	this_cpu_inc(*j->reserved);
	return 0;
}

void nvjk_reserved_ended(struct nvjk_journal *j)
{
	this_cpu_dec(*j->reserved);
	/* Either he who waits finds it counted, or we find that he waits. */
	smp_mb();
	if (unlikely(READ_ONCE(j->held_back)))
		wake_up(&j->reserved_wait);
}

/* Only what ends is counted meanwhile, so if the sum is 0 all have ended. */
static bool any_reserved(struct nvjk_journal *j)
{
	int sum = 0;
	int cpu;

	for_each_possible_cpu(cpu) sum += READ_ONCE(*per_cpu_ptr(j->reserved, cpu));
	return sum != 0;
}

void nvjk_reserved_wait(struct nvjk_journal *j)
{
	WRITE_ONCE(j->held_back, true);
	smp_mb(); /* as above */
	wait_event(j->reserved_wait, !any_reserved(j));
	WRITE_ONCE(j->held_back, false);
}

void jbd2_journal_free_reserved(handle_t *handle)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j = nvjk_of(handle->h_journal);

	WARN_ON_ONCE(!handle->h_reserved);
	nvj_unreserve(&h->reserved);
	nvjk_reserved_ended(j);
	kmem_cache_free(nvjk_handle_cache, h);
}

/* On an error the handle is gone. */
int jbd2_journal_start_reserved(handle_t *handle, unsigned int type, unsigned int line)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_journal *j = nvjk_of(handle->h_journal);
	int error;

	if (WARN_ON(!handle->h_reserved))
		return -EIO;
	if (WARN_ON(current->journal_info)) {
		/* A thread has one handle: this one is given up. */
		jbd2_journal_free_reserved(handle);
		return -EIO;
	}
	handle->h_reserved = 0;
	handle->h_type = type;
	handle->h_line_no = line;
	h->nofs = memalloc_nofs_save();
	error = nvj_start_reserved(&h->reserved, &h->nvj);
	if (error) {
		memalloc_nofs_restore(h->nofs);
		nvjk_reserved_ended(j);
		kmem_cache_free(nvjk_handle_cache, h);
		return error;
	}
	nvjk_handle_begun(h);
	return 0;
}
