/* SPDX-License-Identifier: Apache-2.0 */
#include "plain_file.h"
#include "workload.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINT_LIMIT 20000000u
/* Some ten handles of others. */
#define STALL_POINTS 4000u
#define MOST_BLOCKS 16u

struct actor {
	struct workload_run *run;
	unsigned number;
	struct random random;
	uint32_t lines; /* that the handle has logged */
	uint32_t freed; /* the block it revoked last */
};

size_t workload_region_bytes(const struct workload *w)
{
	size_t lines = (size_t)w->commits * nvj_commit_lines(w->partitions) +
		       (size_t)w->partitions * w->ring_lines;

	return (NVJ_COMMITS_OFFSET + lines * NVJ_LINE_BYTES + 4095) / 4096 * 4096;
}

__attribute__((format(printf, 2, 3))) static void wrong(struct workload_run *run,
							const char *format, ...)
{
	va_list arguments;

	if (run->wrong[0] != 0)
		return;
	va_start(arguments, format);
	vsnprintf(run->wrong, sizeof(run->wrong), format, arguments);
	va_end(arguments);
}

/* The disk failed, as it was told to: the journal takes no more, and says so. */
static bool aborted(struct workload_run *run, int error)
{
	return run->workload->disk_fails && (error == NVJ_EROFS || error == NVJ_EIO) &&
	       nvj_aborted(run->journal) == NVJ_EIO;
}

static uint8_t *cached(struct workload_run *run, uint32_t block)
{
	uint8_t *at = run->cache + (size_t)block * NVJ_BLOCK_BYTES;

	if (!run->block[block].started) {
		memcpy(at, run->world.disk + (size_t)block * NVJ_BLOCK_BYTES, NVJ_BLOCK_BYTES);
		run->block[block].started = true;
	}
	return at;
}

/* --- The caller's locks -------------------------------------------------- */

static void lock(struct workload_run *run, uint32_t block)
{
	uint32_t *word = &run->block[block].locked;

	while (*word != 0)
		schedule_wait(word, 1, 0);
	*word = 1;
}

static void unlock(struct workload_run *run, uint32_t block)
{
	run->block[block].locked = 0;
	schedule_wake(&run->block[block].locked);
}

/* --- One block of a handle ----------------------------------------------- */

/* Lines to change, within allowed. */
static uint64_t choose_lines(struct actor *a, uint64_t allowed)
{
	uint32_t most = a->run->workload->lines_per_block;
	uint32_t count = 1 + random_below(&a->random, most);
	uint32_t first = random_below(&a->random, 64);
	bool together = random_once_in(&a->random, 2);
	uint64_t mask = 0;

	if (count >= 64)
		return allowed;
	for (uint32_t i = 0; i < count; i++)
		mask |= UINT64_C(1) << ((together ? first + i : random_below(&a->random, 64)) % 64);
	mask &= allowed;
	return mask != 0 ? mask : allowed & -allowed;
}

/* Changes the lines in memory; stamps says to what. */
static void change(struct actor *a, uint8_t *image, uint64_t mask, uint32_t stamps[64])
{
	for (unsigned l = 0; l < 64; l++) {
		if (!(mask >> l & 1))
			continue;
		stamps[l] = random_once_in(&a->random, 8) ? 0 : ++a->run->stamps;
		oracle_fill(image + 64 * l, stamps[l]);
	}
}

static void log_block(struct actor *a, struct nvj_handle *handle, uint32_t id, uint32_t block,
		      uint8_t *image, uint64_t mask, uint32_t stamps[64], bool compare_may)
{
	struct workload_run *run = a->run;
	const struct workload *w = run->workload;
	uint64_t told = compare_may && random_once_in(&a->random, 2) ? NVJ_COMPARE : mask;
	bool data = w->data_once_in != 0 && random_once_in(&a->random, w->data_once_in);
	bool later = w->later_once_in != 0 && compare_may && !data &&
		     random_once_in(&a->random, w->later_once_in);
	int r = later ? nvj_log_later(handle, block, image)
		      : (data ? nvj_log_data : nvj_log)(handle, block, image, told);

	if (r < 0 && !aborted(run, r))
		wrong(run, "nvj_log of block %u: %s", block, nvj_strerror(r));
	oracle_log(&run->oracle, id, block, mask, stamps, r);
	run->block[block].logs++;
	if (handle->tid > run->block[block].logged_tid)
		run->block[block].logged_tid = handle->tid;
	a->lines += r > 0 ? (uint32_t)r : 0;
}

static void write_block(struct actor *a, struct nvj_handle *handle, uint32_t id, uint32_t block,
			uint64_t allowed)
{
	struct workload_run *run = a->run;
	uint8_t *image = cached(run, block);
	uint32_t stamps[64] = {0};
	uint64_t mask;
	int r;

	if (run->block[block].state != BLOCK_LIVE) {
		/* It was another's: all its lines are new. */
		r = nvj_create(handle, block);
		memset(image, 0, NVJ_BLOCK_BYTES);
		change(a, image, choose_lines(a, NVJ_ALL_LINES), stamps);
		mask = NVJ_ALL_LINES;
		run->block[block].state = BLOCK_LIVE;
	} else {
		r = nvj_access(handle, block, image);
		mask = choose_lines(a, allowed);
		change(a, image, mask, stamps);
	}
	if (r < 0 && !aborted(run, r))
		wrong(run, "nvj_access of block %u: %s", block, nvj_strerror(r));
	log_block(a, handle, id, block, image, mask, stamps, allowed == NVJ_ALL_LINES);
	if (run->workload->twice_once_in != 0 &&
	    random_once_in(&a->random, run->workload->twice_once_in)) {
		mask &= choose_lines(a, allowed);
		if (mask == 0)
			return;
		change(a, image, mask, stamps);
		log_block(a, handle, id, block, image, mask, stamps, allowed == NVJ_ALL_LINES);
	}
}

/* --- Handles ------------------------------------------------------------- */

static uint32_t choose_blocks(struct actor *a, uint32_t block[MOST_BLOCKS])
{
	const struct workload *w = a->run->workload;
	uint32_t count = 1 + random_below(&a->random, w->blocks_per_handle), unique = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t b = random_below(&a->random, w->blocks), at = unique;
		bool have = false;

		for (uint32_t k = 0; k < unique; k++)
			have |= block[k] == b;
		if (have)
			continue;
		/* In their order: who locks in an order never waits in a ring. */
		while (at > 0 && block[at - 1] > b) {
			block[at] = block[at - 1];
			at--;
		}
		block[at] = b;
		unique++;
	}
	return unique;
}

/* What the blocks may take: twice the lines of each, a whole block if it is created. */
static uint32_t credits_of(const struct workload_run *run, uint32_t count)
{
	const struct workload *w = run->workload;
	uint32_t lines = w->lines_per_block < 64 ? w->lines_per_block : 64;
	uint32_t each = w->twice_once_in != 0 ? 2 * (1 + lines) : 1 + lines;

	/* For a record that is written later. */
	if (w->later_once_in != 0 && each < NVJ_BLOCK_CREDITS)
		each = NVJ_BLOCK_CREDITS;
	/* A created block: its lines that are 0 take none. */
	return count * each;
}

/* Leaves credits for another handle, unless the last reservation is still there. */
static void reserve(struct actor *a, struct nvj_handle *handle, uint32_t credits)
{
	struct workload_run *run = a->run;
	int r = nvj_reserve(handle, &run->reservation[a->number].reserved, credits);

	if (r < 0) {
		wrong(run, "nvj_reserve: %s", nvj_strerror(r));
		return;
	}
	run->reservation[a->number].pending = 1;
	run->work++;
	schedule_wake(&run->work);
}

/* from: the reservation to begin with, or NULL. */
static uint64_t one_handle(struct actor *a, struct nvj_reserved *from)
{
	struct workload_run *run = a->run;
	const struct workload *w = run->workload;
	uint32_t block[MOST_BLOCKS], count, id = ++run->handle_ids, credits, most;
	struct nvj_handle handle;
	uint64_t tid, own, allowed = NVJ_ALL_LINES;
	bool held[MOST_BLOCKS] = {false}, freed[MOST_BLOCKS] = {false};
	uint32_t reserved = 0;
	bool early;
	int r;

	count = choose_blocks(a, block);
	a->lines = 0;
	most = from ? from->credits : nvj_max_credits(run->journal);
	if (!from && w->reserve_once_in != 0 && !run->reservation[a->number].pending &&
	    random_once_in(&a->random, w->reserve_once_in)) {
		reserved = credits_of(run, 1 + random_below(&a->random, 2));
		most -= reserved;
	}
	while ((credits = credits_of(run, count)) > most && count > 1)
		count--;
	schedule_doing(from ? "in nvj_start_reserved" : "in nvj_start");
	r = from ? nvj_start_reserved(from, &handle)
		 : nvj_start(run->journal, &handle, (credits < most ? credits : most) + reserved);
	if (r < 0) {
		if (!aborted(run, r))
			wrong(run, "nvj_start: %s", nvj_strerror(r));
		return 0;
	}
	if (reserved)
		reserve(a, &handle, reserved);
	own = handle.tid;
	run->open_tid[a->number] = own;
	if (w->halves)
		allowed = a->number % 2 ? UINT64_C(0xffffffff00000000) : UINT64_C(0xffffffff);
	schedule_doing("in a handle, locking");
	for (uint32_t i = 0; i < count && !w->halves; i++) {
		lock(run, block[i]);
		held[i] = true;
	}
	schedule_doing("in a handle, logging");
	for (uint32_t i = 0; i < count; i++) {
		bool live = run->block[block[i]].state == BLOCK_LIVE;

		if (live && w->revoke_once_in != 0 &&
		    random_once_in(&a->random, w->revoke_once_in)) {
			r = nvj_revoke(&handle, block[i]);
			if (r < 0 && !aborted(run, r))
				wrong(run, "nvj_revoke: %s", nvj_strerror(r));
			oracle_revoke(&run->oracle, id, block[i], r);
			a->lines++;
			run->block[block[i]].state = BLOCK_FREED;
			freed[i] = true;
			a->freed = block[i];
		} else {
			write_block(a, &handle, id, block[i], allowed);
		}
	}
	early = w->early_unlock && random_once_in(&a->random, 2);
	for (uint32_t i = 0; i < count && early; i++) {
		if (held[i] && !freed[i]) {
			unlock(run, block[i]);
			held[i] = false;
		}
	}
	schedule_doing("in nvj_stop");
	/* From here on a commit need not wait for it any more. */
	run->open_tid[a->number] = 0;
	tid = nvj_stop(&handle);
	/* Its own: what nvj_stop returns may be an earlier one if it logged nothing. */
	oracle_stop(&run->oracle, id, own);
	for (uint32_t i = 0; i < count; i++) {
		if (freed[i])
			run->block[block[i]].freed_tid = own;
		if (held[i])
			unlock(run, block[i]);
	}
	return tid;
}

/* logged: something was, in that transaction; else there is nothing to commit. */
static bool commit(struct actor *a, uint64_t tid, bool logged)
{
	struct workload_run *run = a->run;
	int r;

	schedule_doing("in nvj_commit");
	r = nvj_commit(run->journal, tid);
	if (r < 0 && aborted(run, r))
		return false;
	if (r < 0)
		wrong(run, "nvj_commit: %s", nvj_strerror(r));
	else if (logged && nvj_committed(run->journal) < tid)
		wrong(run, "nvj_commit returned, and transaction %llu is not committed",
		      (unsigned long long)tid);
	else if (tid != 0 && logged)
		trace_add(&run->world.trace, TRACE_COMMITTED, schedule_self(), tid, 0, NULL, 0);
	return true;
}

/*
 * A block that was revoked becomes the caller's, who writes it himself. No lock
 * is held while it commits: an open handle could wait for it.
 */
static void use_freed(struct actor *a)
{
	struct workload_run *run = a->run;
	uint32_t block = random_once_in(&a->random, 2)
				 ? a->freed
				 : random_below(&a->random, run->workload->blocks);
	uint8_t *image = cached(run, block);
	uint64_t tid;
	uint32_t stamp = ++run->stamps, id;

	lock(run, block);
	tid = run->block[block].state == BLOCK_FREED ? run->block[block].freed_tid : 0;
	unlock(run, block);
	if (tid == 0)
		return;
	if (!commit(a, tid, true))
		return;
	lock(run, block);
	if (run->block[block].state == BLOCK_FREED && run->block[block].freed_tid == tid) {
		run->block[block].state = BLOCK_DATA;
		for (unsigned l = 0; l < 64; l++)
			oracle_fill(image + 64 * l, stamp);
		id = oracle_direct(&run->oracle, block, image);
		trace_add(&run->world.trace, TRACE_DIRECT, schedule_self(), block, id, NULL, 0);
		world_write(&run->world, block, image);
		trace_add(&run->world.trace, TRACE_DIRECT_DONE, schedule_self(), block, id, NULL,
			  0);
	}
	unlock(run, block);
}

/* Still as it was when it had been logged so often. */
static bool unchanged(const struct workload_run *run, uint32_t block, uint32_t logs)
{
	return run->block[block].state == BLOCK_LIVE && run->block[block].logs == logs;
}

/* In a handle of its own; the block is at home, for good. */
static void revoke_at_home(struct actor *a, uint32_t block, uint32_t logs)
{
	struct workload_run *run = a->run;
	uint32_t id = ++run->handle_ids, direct;
	struct nvj_handle handle;
	uint64_t tid;
	int r = nvj_start(run->journal, &handle, 1);

	if (r < 0) {
		if (!aborted(run, r))
			wrong(run, "nvj_start: %s", nvj_strerror(r));
		return;
	}
	run->open_tid[a->number] = handle.tid;
	lock(run, block);
	if (unchanged(run, block, logs)) {
		r = nvj_revoke(&handle, block);
		if (r < 0 && !aborted(run, r))
			wrong(run, "nvj_revoke: %s", nvj_strerror(r));
		oracle_revoke(&run->oracle, id, block, r);
		direct = oracle_direct(&run->oracle, block, cached(run, block));
		trace_add(&run->world.trace, TRACE_DIRECT, schedule_self(), block, direct, NULL, 0);
		trace_add(&run->world.trace, TRACE_DIRECT_DONE, schedule_self(), block, direct,
			  NULL, 0);
		run->block[block].state = BLOCK_FREED;
		run->block[block].freed_tid = handle.tid;
	}
	run->open_tid[a->number] = 0;
	tid = handle.tid;
	nvj_stop(&handle);
	oracle_stop(&run->oracle, id, tid);
	unlock(run, block);
}

/* A block leaves the journal as it is: nobody writes it again, and it must stay so. */
static void bring_home(struct actor *a)
{
	struct workload_run *run = a->run;
	uint32_t block = random_below(&a->random, run->workload->blocks);
	const uint64_t number = block;
	uint64_t tid = run->block[block].logged_tid;
	uint32_t logs = run->block[block].logs;
	int r;

	if (tid == 0 || !commit(a, tid, false))
		return;
	lock(run, block);
	if (!unchanged(run, block, logs)) {
		unlock(run, block);
		return;
	}
	schedule_doing("in nvj_bring_home");
	r = nvj_bring_home(run->journal, &number, 1, true);
	if (r < 0 && !aborted(run, r))
		wrong(run, "nvj_bring_home: %s", nvj_strerror(r));
	if (r == 0 && memcmp(run->world.disk + number * NVJ_BLOCK_BYTES, cached(run, block),
			     NVJ_BLOCK_BYTES) != 0)
		wrong(run, "block %u is not at home", block);
	unlock(run, block);
	if (r == 0)
		revoke_at_home(a, block, logs);
}

/* What the journal says that a block is, and what is at home. */
static void look(struct actor *a)
{
	struct workload_run *run = a->run;
	uint32_t block = random_below(&a->random, run->workload->blocks);
	uint8_t image[NVJ_BLOCK_BYTES], *is = image;

	lock(run, block);
	if (run->block[block].state == BLOCK_LIVE && run->block[block].started &&
	    !nvj_aborted(run->journal)) {
		if (!nvj_peek(run->journal, block, image))
			is = run->world.disk + (size_t)block * NVJ_BLOCK_BYTES;
		if (memcmp(is, cached(run, block), NVJ_BLOCK_BYTES) != 0)
			wrong(run, "block %u %s is not as it was last logged", block,
			      is == image ? "by nvj_peek" : "at home, where nvj_peek says it is,");
	}
	unlock(run, block);
}

static void act(void *argument)
{
	struct actor *a = argument;
	const struct workload *w = a->run->workload;

	for (uint32_t i = 0; i < w->handles && a->run->wrong[0] == 0; i++) {
		if (w->disk_fails && nvj_aborted(a->run->journal))
			break;

		uint64_t tid = one_handle(a, NULL);

		if (w->commit_once_in != 0 && random_once_in(&a->random, w->commit_once_in))
			commit(a, random_once_in(&a->random, 8) ? 0 : tid, a->lines != 0);
		if (w->checkpoint_once_in != 0 &&
		    random_once_in(&a->random, w->checkpoint_once_in)) {
			schedule_doing("in nvj_checkpoint");
			int r = nvj_checkpoint(a->run->journal);

			if (r < 0 && !aborted(a->run, r))
				wrong(a->run, "nvj_checkpoint failed");
		}
		if (w->revoke_once_in != 0 && random_once_in(&a->random, 3))
			use_freed(a);
		if (w->home_once_in != 0 && random_once_in(&a->random, w->home_once_in))
			bring_home(a);
		if (!w->halves && random_once_in(&a->random, 4))
			look(a);
	}
	schedule_doing("done");
	a->run->actors_ended++;
	a->run->work++;
	schedule_wake(&a->run->work);
}

/* File data under way: its end is waited for, and nobody brings it about sooner. */
static void write_data(struct actor *a)
{
	const uint32_t never = 0;

	if (a->run->workload->reserve_ns == 0)
		return;
	schedule_doing("writing file data");
	schedule_wait(&never, 0,
		      1 + random_below(&a->random, (uint32_t)a->run->workload->reserve_ns));
}

/* Begins what was reserved, as the end of a write would, until no actor is left. */
static void convert(void *argument)
{
	struct actor *a = argument;
	struct workload_run *run = a->run;

	for (;;) {
		uint32_t work = run->work, actors = run->workload->actors, i;

		for (i = 0; i < actors; i++)
			if (run->reservation[i].pending && !run->reservation[i].started)
				break;
		if (i < actors) {
			run->reservation[i].started = true;
			write_data(a);
			one_handle(a, &run->reservation[i].reserved);
			run->reservation[i].started = false;
			run->reservation[i].pending = 0;
			schedule_wake(&run->reservation[i].pending);
		} else if (run->actors_ended == actors) {
			break;
		} else {
			schedule_doing("waiting for a reservation");
			schedule_wait(&run->work, work, 0);
		}
	}
	schedule_doing("done");
}

/* --- The run ------------------------------------------------------------- */

struct worker {
	struct workload_run *run;
	unsigned partition;
};

static void checkpoint_worker(void *argument)
{
	struct worker *w = argument;

	schedule_doing("in nvj_checkpoint_worker");
	nvj_checkpoint_worker(w->run->journal, w->partition);
}

static void commit_worker(void *argument)
{
	struct worker *w = argument;

	schedule_doing("in nvj_commit_worker");
	nvj_commit_worker(w->run->journal, w->partition);
}

/* Ordered mode: no handle is open that this commit takes, and nothing is sealed yet. */
static int before_commit(void *context, uint64_t tid)
{
	struct workload_run *run = ((struct world *)context)->user;

	for (uint32_t i = 0; i < run->workload->actors + WORKLOAD_CONVERTERS; i++)
		if (run->open_tid[i] != 0 && run->open_tid[i] <= tid)
			wrong(run, "before_commit of %llu, and a handle of %llu is open",
			      (unsigned long long)tid, (unsigned long long)run->open_tid[i]);
	schedule_point();
	/* File data whose write has not ended: its end needs a handle. */
	for (uint32_t i = 0; i < run->workload->actors; i++)
		while (run->reservation[i].pending)
			schedule_wait(&run->reservation[i].pending, 1, 0);
	trace_add(&run->world.trace, TRACE_ORDERED, schedule_self(), tid, 0, NULL, 0);
	return 0;
}

/* What is dealt to the threads of a recovery. */
struct deal {
	void (*work)(void *argument, unsigned n);
	void *argument;
	unsigned count, next, first;
};

static void take_parts(void *argument)
{
	struct deal *d = argument;

	schedule_doing("in a recovery");
	while (d->next < d->count)
		d->work(d->argument, (d->first + d->next++) % d->count);
}

static void recover_in_threads(void *context, unsigned count,
			       void (*work)(void *argument, unsigned n), void *argument)
{
	struct workload_run *run = ((struct world *)context)->user;
	struct deal deal = {.work = work,
			    .argument = argument,
			    .count = count,
			    .first = random_below(&run->random, count)};
	unsigned thread[SCHEDULE_MAX_THREADS];

	for (uint32_t i = 0; i < run->workload->recover_with; i++)
		thread[i] = schedule_spawn(run->schedule, "recovery", take_parts, &deal);
	for (uint32_t i = 0; i < run->workload->recover_with; i++)
		schedule_join(thread[i]);
}

/* A journal of ours, if there is none yet: over whatever is there. */
static void format(struct workload_run *run)
{
	const struct workload *w = run->workload;
	struct nvj_format_options options = {
		.partitions = w->partitions,
		.commits = w->commits,
		.placement = random_below(&run->random, 2) ? NVJ_PLACE_CPU : NVJ_PLACE_BLOCK,
		.uuid = {WORKLOAD_UUID}};
	struct nvj_disk_super super;
	int error = nvj_read_super(&run->world.nvj_region, &super);

	if (!error && super.uuid[0] == WORKLOAD_UUID)
		return;
	schedule_doing("in nvj_format");
	error = nvj_format(&run->world.nvj_region, &options);
	if (error < 0)
		wrong(run, "nvj_format: %s", nvj_strerror(error));
	trace_add(&run->world.trace, TRACE_FORMATTED, schedule_self(), 0, 0, NULL, 0);
}

static void open_and_run(void *argument)
{
	struct workload_run *run = argument;
	const struct workload *w = run->workload;
	struct nvj_options options = {.workers = w->workers,
				      .checkpoint_percent = w->checkpoint_percent,
				      .recover_with = w->recover_with ? recover_in_threads : NULL};
	struct nvj_report report;
	struct actor actor[SCHEDULE_MAX_THREADS];
	struct worker worker[SCHEDULE_MAX_THREADS];
	unsigned thread[SCHEDULE_MAX_THREADS], threads = 0;

	if (w->formats)
		format(run);
	schedule_doing("in nvj_open");
	int error = nvj_open(&run->journal, &run->world.nvj_region, &run->world.platform, &options,
			     &report);
	if (error < 0) {
		wrong(run, "nvj_open: %s", nvj_strerror(error));
		return;
	}
	if (w->later_lines != 0)
		error = nvj_allow_later(run->journal, w->later_lines);
	if (error < 0) {
		wrong(run, "nvj_allow_later: %s", nvj_strerror(error));
		return;
	}
	trace_add(&run->world.trace, TRACE_OPENED, schedule_self(), nvj_committed(run->journal), 0,
		  NULL, 0);
	if (w->disk_fails)
		run->world.writes_until_error = 1 + random_below(&run->random, 30);
	for (uint32_t i = 0; i < w->actors; i++) {
		actor[i] = (struct actor){
			.run = run, .number = i, .random = random_from(random_next(&run->random))};
		thread[threads++] = schedule_spawn(run->schedule, "actor", act, &actor[i]);
	}
	for (uint32_t i = 0; i < w->partitions && w->workers; i++) {
		worker[i] = (struct worker){run, i};
		thread[threads++] = schedule_spawn(run->schedule, "checkpoint worker",
						   checkpoint_worker, &worker[i]);
		thread[threads++] =
			schedule_spawn(run->schedule, "commit worker", commit_worker, &worker[i]);
	}
	for (uint32_t i = 0; i < WORKLOAD_CONVERTERS && w->reserve_once_in; i++) {
		unsigned number = w->actors + i;

		actor[number] = (struct actor){.run = run,
					       .number = number,
					       .random = random_from(random_next(&run->random))};
		thread[threads++] =
			schedule_spawn(run->schedule, "converter", convert, &actor[number]);
	}
	for (uint32_t i = 0; i < w->actors; i++)
		schedule_join(thread[i]);
	for (uint32_t i = 0; i < WORKLOAD_CONVERTERS && w->reserve_once_in; i++)
		schedule_join(thread[threads - WORKLOAD_CONVERTERS + i]);
	if (w->workers) {
		nvj_stop_workers(run->journal);
		for (unsigned i = w->actors; i < threads; i++)
			schedule_join(thread[i]);
	}
	nvj_statistics(run->journal, &run->statistics);
	if (w->close && random_once_in(&run->random, 2)) {
		schedule_doing("in nvj_close");
		error = nvj_close(run->journal);
		if (error < 0 && !w->disk_fails)
			wrong(run, "nvj_close: %s", nvj_strerror(error));
	} else {
		nvj_abandon(run->journal);
	}
	if (run->world.allocated != 0)
		wrong(run, "%lld pieces of memory were not released",
		      (long long)run->world.allocated);
}

bool workload_start(struct workload_run *run, const struct workload *w, uint8_t *region,
		    uint8_t *disk, uint64_t seed)
{
	size_t bytes = (size_t)w->blocks * NVJ_BLOCK_BYTES;

	memset(run, 0, sizeof(*run));
	run->workload = w;
	run->schedule = schedule_new(seed, POINT_LIMIT);
	schedule_stalls(run->schedule, w->stall_once_in, STALL_POINTS);
	run->random = random_from(seed + 1);
	run->cache = aligned_alloc(4096, bytes);
	run->block = calloc(w->blocks, sizeof(*run->block));
	if (run->cache == NULL || run->block == NULL)
		abort();
	world_begin(&run->world, region, workload_region_bytes(w), disk, w->blocks, seed + 2);
	run->world.user = run;
	if (w->plain_file)
		plain_file_begin(&run->world);
	run->world.platform.before_commit = before_commit;
	oracle_begin(&run->oracle, disk, w->blocks);
	schedule_spawn(run->schedule, "main", open_and_run, run);
	if (schedule_run(run->schedule) != SCHEDULE_DONE) {
		schedule_print(run->schedule);
		wrong(run, "the threads do not come to an end");
	}
	run->points = schedule_points(run->schedule);
	schedule_free(run->schedule);
	if (run->world.wrong[0] != 0)
		wrong(run, "%s", run->world.wrong);
	return run->wrong[0] == 0;
}

void workload_end(struct workload_run *run)
{
	free(run->cache);
	free(run->block);
	oracle_end(&run->oracle);
	world_end(&run->world);
}
