/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system as the caller: each update of an operation is a handle of its own,
 * and there is work in handles and between operations. So a commit waits for open
 * handles, and handles of two transactions are open at a time. ext4nvj merges such
 * transactions (kernel/jbd2/handle.c): with merge set, so does this caller.
 */
#include "callers.h"

#include "processors.h"

/* The credits of a handle that may change eight whole blocks, as ext4 asks for. */
#define CREDITS (8 * NVJ_BLOCK_CREDITS)

static struct callers callers;
static uint64_t random_state, newest;

void callers_set(const struct callers *c)
{
	callers = *c;
	random_state = UINT64_C(88172645463325252);
	newest = 0;
}

bool callers_are_alone(void)
{
	return callers.alone;
}

/* Half of the mean to one and a half: callers do not stay in step. */
static void work(uint64_t mean_ps)
{
	if (!mean_ps)
		return;
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	processor_pass(mean_ps / 2 + random_state % mean_ps);
}

/* The transaction of the newest handle: a word that all callers share. */
static uint64_t newest_with(uint64_t tid)
{
	processor_access(&newest, sizeof(newest), tid > newest);
	if (tid > newest)
		newest = tid;
	return newest;
}

static int change(struct nvj *journal, struct worker *w, const struct update *u)
{
	uint64_t block = w->first_block + u->block;
	uint8_t *image = w->images + (size_t)u->index * NVJ_BLOCK_BYTES;
	struct nvj_handle handle;
	int error = nvj_start(journal, &handle, CREDITS);

	if (error)
		return error;
	newest_with(handle.tid);
	work(callers.handle_ps / 2);
	error = nvj_access(&handle, block, image);
	if (error)
		return error;
	worker_change(w, u);
	work(callers.handle_ps / 2);
	error = nvj_log(&handle, block, image, u->mask);
	if (error < 0)
		return error;
	if (callers.merge && newest_with(0) > handle.tid)
		nvj_merge(&handle, newest);
	w->tid = nvj_stop(&handle);
	return 0;
}

int callers_apply(struct nvj *journal, struct worker *w, const struct operation *o)
{
	int error = 0;

	for (uint32_t k = 0; !error && k < o->count; k++)
		error = change(journal, w, &o->updates[k]);
	work(callers.between_ps);
	return error;
}
