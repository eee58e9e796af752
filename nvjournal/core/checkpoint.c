/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Checkpoint rounds. The target of a round is the last transaction that was
 * committed at its start. Each thread takes a partition that no thread has
 * taken: the workers do so, and so does a thread that waits for the round. So a
 * round ends even if no worker runs. The threads synchronize at a counter
 * (paper 4, section 3.2). The last one flushes the disk and moves the tail.
 */
#include "journal.h"

/* Ends a round in which all partitions have been written. */
static void end_round(struct nvj *j)
{
	uint64_t target = j->round_target;
	int error = nvj_load_sc(&j->aborted);

	if (!error) {
		/*
		 * The blocks are persistent on the disk before the tail moves.
		 */
		error = j->platform.flush(j->platform.context);
		if (error)
			nvj_abort_at(j, NVJ_EIO, NVJ_NO_BLOCK);
	}
	/*
	 * Checked again: a flush takes time, and meanwhile the region's memory
	 * may have failed or been removed.
	 */
	if (!error)
		error = nvj_load_sc(&j->aborted);
	if (!error) {
		/*
		 * nvj_tail_write has fenced, so the tail is persistent before
		 * the freed space is reused.
		 */
		nvj_point();
		nvj_tail_write(&j->geometry, j->persistence, target);
		nvj_count(&j->fences, 1);
		nvj_count(&j->checkpoints, 1);
		if (j->platform.tail_moved)
			j->platform.tail_moved(j->platform.context, target);
		nvj_store_sc(&j->tail, target);
		nvj_room_moved(j, nvj_lows(j, target));
	}
	nvj_store_sc(&j->round_active, 0);
	nvj_ring_bell(&j->round_ended, &j->platform);
}

/* Takes a partition of the round, if no other thread has, and writes it. */
static bool help(struct nvj *j, unsigned partition)
{
	struct nvj_partition *p = &j->partition[partition];
	uint64_t round = nvj_load_sc(&j->round);
	uint64_t before = round - 1;

	/*
	 * Each partition is claimed once in each round. So this can only be the
	 * current round.
	 */
	if (!nvj_replace_sc(&p->claimed, &before, round))
		return false;
	nvj_home_write_partition(j, p);
	if (nvj_sub_sc(&j->round_left, 1) == 1)
		end_round(j);
	return true;
}

/* Starts a round, unless there is one or the tail is at goal. */
static void begin_round(struct nvj *j, uint64_t goal)
{
	uint32_t idle = 0;

	if (!nvj_replace_sc(&j->round_active, &idle, 1))
		return;
	if (nvj_load_sc(&j->tail) >= goal) {
		nvj_store_sc(&j->round_active, 0);
		nvj_ring_bell(&j->round_ended, &j->platform);
		return;
	}
	nvj_store_sc(&j->wanted, 0);
	j->round_target = nvj_load_sc(&j->committed);
	nvj_store_sc(&j->round_left, j->partitions);
	/*
	 * After target and counter: a thread that reads the number also sees
	 * both.
	 */
	nvj_add_sc(&j->round, 1);
	nvj_ring_bell(&j->work, &j->platform);
}

/* first is the partition to start with. Each worker has its own. */
static int checkpoint_from(struct nvj *j, uint64_t goal, unsigned first)
{
	while (nvj_load_sc(&j->tail) < goal) {
		uint32_t rings;

		if (nvj_load_sc(&j->aborted))
			return nvj_aborted(j);
		begin_round(j, goal);
		for (unsigned i = 0; i < j->partitions; i++)
			(void)help(j, (first + i) % j->partitions);
		rings = nvj_attend(&j->round_ended);
		if (nvj_load_sc(&j->round_active) && nvj_load_sc(&j->tail) < goal)
			j->platform.wait(j->platform.context, &j->round_ended.rings, rings,
					 NVJ_SAFETY_NS);
		nvj_leave(&j->round_ended);
	}
	return 0;
}

int nvj_checkpoint_to(struct nvj *j, uint64_t goal)
{
	return checkpoint_from(j, goal, 0);
}

int nvj_checkpoint(struct nvj *j)
{
	return nvj_checkpoint_to(j, nvj_load_sc(&j->committed));
}

static int wanted_from(struct nvj *j, unsigned first)
{
	int error = 0;

	nvj_store_sc(&j->wanted, 0);
	if (nvj_load_sc(&j->hold) & NVJ_HOLD_TIGHT)
		error = nvj_commit_running(j);
	else if (nvj_room_wants_commit(j))
		error = nvj_commit_to(j, 0);
	if (!error)
		error = checkpoint_from(j, nvj_load_sc(&j->committed), first);
	return error;
}

int nvj_checkpoint_wanted(struct nvj *j)
{
	return wanted_from(j, 0);
}

void nvj_checkpoint_worker(struct nvj *j, unsigned partition)
{
	while (!nvj_load_sc(&j->stopping)) {
		uint32_t rings = nvj_attend(&j->work);
		bool wanted = nvj_load_sc(&j->wanted) && !nvj_load_sc(&j->aborted);
		bool helped = help(j, partition);

		if (!wanted && !helped && !nvj_load_sc(&j->stopping))
			j->platform.wait(j->platform.context, &j->work.rings, rings, 0);
		nvj_leave(&j->work);
		/* An error aborts the journal. */
		if (wanted)
			(void)wanted_from(j, partition);
	}
}

void nvj_stop_workers(struct nvj *j)
{
	nvj_store_sc(&j->stopping, 1);
	nvj_ring_bell(&j->work, &j->platform);
	j->platform.wake(j->platform.context, &j->stopping);
	/* A thread that waits for room makes room itself from now on. */
	j->platform.wake(j->platform.context, &j->hold);
}
