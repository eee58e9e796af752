/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of a handle in what updates.c does. A test in user space also includes this
 * (nvjournal/test/engine_updates.c), with structures of its own.
 */
#ifndef NVJK_UPDATES_H
#define NVJK_UPDATES_H

/* The engine has started the handle while all are held back. It ends, and waits. */
void nvjk_updates_wait(struct nvjk_journal *j, struct nvjk_handle *h);

/*
 * Called when a handle has ended. Either the thread that holds back all handles sees the
 * engine's count of it, or this thread sees held_back.
 */
static inline void nvjk_updates_ended(struct nvjk_journal *j)
{
	if (unlikely(nvj_load_sc(&j->held_back)))
		wake_up(&j->ended_wait);
}

/*
 * As nvj_start_on, but waits while all handles are held back, unless the handle was
 * reserved.
 */
static __always_inline int nvjk_updates_start(struct nvjk_journal *j, struct nvjk_handle *h,
					      u32 credits, bool was_reserved)
{
	int error;

	while (!(error = nvj_start_on(j->nvj, &h->nvj, credits, raw_smp_processor_id()))) {
		if (was_reserved || likely(!nvj_load_sc(&j->held_back)))
			return 0;
		nvjk_updates_wait(j, h);
	}
	/* The engine has counted it as open for a moment. */
	nvjk_updates_ended(j);
	return error;
}

#endif
