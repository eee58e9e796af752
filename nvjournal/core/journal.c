/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* An open journal from nvj_open to nvj_close, and its abort. */
#include "journal.h"
#include "recover.h"

/*
 * A handle stores only in lines of its processor, of its ring and of its blocks.
 * So handles on different processors move no line between them. What they read of
 * the journal is in lines that they do not write, and that are written seldom.
 */
#ifndef __CHECKER__ /* sparse ignores the alignment of a pointer */
#define LINE_OF(type, field) (offsetof(type, field) / NVJ_LINE_BYTES)
#define BEGINS_A_LINE(type, field) (offsetof(type, field) % NVJ_LINE_BYTES == 0)

/* No two processors, rings or blocks share a line. */
_Static_assert(sizeof(struct nvj_cpu) % NVJ_LINE_BYTES == 0, "processors share a line");
_Static_assert(sizeof(struct nvj_partition) % NVJ_LINE_BYTES == 0, "rings share a line");
_Static_assert(sizeof(struct nvj_block) % NVJ_LINE_BYTES == 0, "blocks share a line");
_Static_assert(sizeof(struct nvj_image) % NVJ_LINE_BYTES == 0, "images share a line");

/* Of the journal, handles read what is before closing, and the line of hold ... */
_Static_assert(BEGINS_A_LINE(struct nvj, running) && BEGINS_A_LINE(struct nvj, closing) &&
		       BEGINS_A_LINE(struct nvj, hold) && BEGINS_A_LINE(struct nvj, sealed),
	       "what handles read is with something else");
_Static_assert(LINE_OF(struct nvj, merge_to) == LINE_OF(struct nvj, running) &&
		       LINE_OF(struct nvj, credited) == LINE_OF(struct nvj, hold) &&
		       LINE_OF(struct nvj, committed) == LINE_OF(struct nvj, sealed),
	       "handles read more lines than they must");
/* ... and these are stored more often. */
_Static_assert(BEGINS_A_LINE(struct nvj, leading) && BEGINS_A_LINE(struct nvj, record) &&
		       BEGINS_A_LINE(struct nvj, tail) && BEGINS_A_LINE(struct nvj, later_lines) &&
		       BEGINS_A_LINE(struct nvj, credits) && BEGINS_A_LINE(struct nvj, fences),
	       "what changes often is with something else");

/* Any thread may read the bounds of a ring; only its own processor needs its head. */
_Static_assert(LINE_OF(struct nvj_partition, head) < LINE_OF(struct nvj_partition, lines) &&
		       LINE_OF(struct nvj_partition, end) == LINE_OF(struct nvj_partition, lines) &&
		       LINE_OF(struct nvj_partition, end) <
			       LINE_OF(struct nvj_partition, last_check) &&
		       BEGINS_A_LINE(struct nvj_partition, last_check) &&
		       BEGINS_A_LINE(struct nvj_partition, sequence) &&
		       BEGINS_A_LINE(struct nvj_partition, list_lock) &&
		       BEGINS_A_LINE(struct nvj_partition, claimed),
	       "parts of a ring that different threads use share a line");
_Static_assert(LINE_OF(struct nvj_partition, blocks) == LINE_OF(struct nvj_partition, list_lock),
	       "a new entry changes more than one line of its ring");
#endif

/* How many clean entries may stay in the table of a partition. */
#define MOST_CLEAN UINT64_C(4096)
#define LEAST_CLEAN UINT64_C(64)

static bool is_zero(const uint8_t uuid[16])
{
	uint8_t any = 0;

	for (int i = 0; i < 16; i++)
		any |= uuid[i];
	return any == 0;
}

static int check_medium(const struct nvj_region *region, const uint8_t disk_uuid[16])
{
	struct nvj_disk_super super;
	int error = nvj_read_super(region, &super);

	if (error || is_zero(disk_uuid) || is_zero(super.disk_uuid))
		return error;
	return __builtin_memcmp(super.disk_uuid, disk_uuid, 16) ? NVJ_EMEDIUM : 0;
}

static size_t flags_bytes(const struct nvj *j)
{
	uint64_t rest = j->geometry.ring_lines % NVJ_FLAGS_TOGETHER;

	return (j->geometry.ring_lines + (rest ? NVJ_FLAGS_TOGETHER - rest : 0)) * sizeof(uint64_t);
}

static size_t lows_bytes(const struct nvj *j)
{
	return (size_t)j->geometry.commits * j->partitions * sizeof(uint64_t);
}

/* log2 of the number of buckets: about one for 8 lines of the ring, 2^6 to 2^18. */
static unsigned bucket_bits(const struct nvj *j)
{
	unsigned bits = 6;

	while (bits < 18 && (UINT64_C(8) << bits) < j->geometry.ring_lines)
		bits++;
	return bits;
}

static size_t buckets_bytes(const struct nvj *j)
{
	return sizeof(struct nvj_bucket) << bucket_bits(j);
}

static void free_all(struct nvj *j)
{
	struct nvj_platform platform = j->platform;

	for (unsigned i = 0; j->partition && i < j->partitions; i++) {
		struct nvj_partition *p = &j->partition[i];

		nvj_slabs_release(j, p);
		nvj_home_queue_free(j, &p->home);
		if (p->flags)
			platform.release(platform.context, p->flags, flags_bytes(j));
		if (p->buckets)
			platform.release(platform.context, p->buckets, buckets_bytes(j));
	}
	nvj_home_queue_free(j, &j->brought);
	if (j->partition)
		platform.release(platform.context, j->partition,
				 j->partitions * sizeof(*j->partition));
	if (j->cpu)
		platform.release(platform.context, j->cpu, NVJ_CPUS * sizeof(*j->cpu));
	if (j->lows)
		platform.release(platform.context, j->lows, lows_bytes(j));
	platform.release(platform.context, j, sizeof(*j));
}

static int make_partition(struct nvj *j, unsigned index, uint64_t head)
{
	struct nvj_partition *p = &j->partition[index];
	uint64_t clean = j->geometry.ring_lines / 16;

	p->index = index;
	p->head = p->last_check = j->first_line[index] = head;
	p->lines = (uint8_t *)nvj_line_at(&j->geometry, index, 0);
	p->bucket_shift = 64 - bucket_bits(j);
	p->most_blocks = clean > MOST_CLEAN    ? MOST_CLEAN
			 : clean < LEAST_CLEAN ? LEAST_CLEAN
					       : clean;
	p->flags = nvj_allocate(j, flags_bytes(j));
	p->buckets = nvj_allocate(j, buckets_bytes(j));
	if (!p->flags || !p->buckets)
		return NVJ_ENOMEM;
	return nvj_home_queue_init(j, &p->home, index, p);
}

static int make(struct nvj *j, const struct nvj_recovered *recovered)
{
	j->geometry = recovered->geometry;
	j->partitions = j->geometry.partitions;
	j->by_ring = nvj_divisor(j->geometry.ring_lines);
	j->by_partitions = nvj_divisor(j->partitions);
	j->max_credits = (uint32_t)(j->geometry.ring_lines / 4);
	j->credits = j->max_credits;
	j->credit_chunk = j->max_credits / (2 * NVJ_CPUS);
	j->partition = nvj_allocate(j, j->partitions * sizeof(*j->partition));
	j->cpu = nvj_allocate(j, NVJ_CPUS * sizeof(*j->cpu));
	j->lows = nvj_allocate(j, lows_bytes(j));
	if (!j->partition || !j->cpu || !j->lows)
		return NVJ_ENOMEM;
	for (unsigned i = 0; i < j->partitions; i++)
		if (make_partition(j, i, recovered->high[i]))
			return NVJ_ENOMEM;
	return nvj_home_queue_init(j, &j->brought, j->partitions, NULL);
}

/*
 * Writes the anchor. Records that the crashed run left at high or after it have
 * transaction numbers that may be used again. After the anchor, all of them are
 * before every low. The anchor is sealed, and the tail is at it, before the
 * first record is written.
 */
static void drop_anchor(struct nvj *j, uint64_t tid)
{
	struct nvj_commit_buffer *record = &j->record[0];
	uint64_t *lows = nvj_lows(j, tid);

	nvj_commit_begin(&j->geometry, record, tid, NVJ_ANCHOR,
			 j->platform.now_ns(j->platform.context));
	for (unsigned i = 0; i < j->partitions; i++)
		record->at[i].low = record->at[i].high = lows[i] = j->partition[i].head;
	nvj_commit_write_body(&j->geometry, j->persistence, record);
	nvj_fence(j); /* the record before its seal */
	nvj_commit_write_seal(&j->geometry, j->persistence, record);
	nvj_fence(j); /* the seal before the tail names it, and before any record */
	nvj_tail_write(&j->geometry, j->persistence, tid);
	j->fences = 3;
	j->tail = j->sealed = j->committed = tid;
	j->running = tid + 1;
	nvj_room_moved(j, lows);
}

int nvj_open(struct nvj **journal, const struct nvj_region *region,
	     const struct nvj_platform *platform, const struct nvj_options *options,
	     struct nvj_report *report)
{
	static const struct nvj_options none;
	struct nvj_recovered *recovered;
	struct nvj *j;
	int error;

	*journal = NULL;
	if (!options)
		options = &none;
	if (options->checkpoint_percent > 100)
		return NVJ_EINVAL;
	error = check_medium(region, options->disk_uuid);
	if (error) {
		/*
		 * The report names the damage, even if the journal belongs to
		 * another disk.
		 */
		if (report && error != NVJ_EINVAL)
			(void)nvj_check(region, platform, report);
		return error;
	}
	j = platform->allocate(platform->context, sizeof(*j));
	if (!j)
		return NVJ_ENOMEM;
	j->platform = *platform;
	j->persistence = region->persistence;
	j->checkpoint_percent = options->checkpoint_percent ? options->checkpoint_percent : 50;
	j->workers = options->workers;
#ifdef NVJ_LOCK_TIMES
	j->opened_ticks = nvj_ticks();
	j->opened_ns = platform->now_ns(platform->context);
#endif
	recovered = nvj_allocate(j, sizeof(*recovered));
	if (!recovered) {
		free_all(j);
		return NVJ_ENOMEM;
	}
	error = nvj_recover_into(region, platform, options->recover_with, report, recovered);
	if (!error && recovered->sealed_tid >= NVJ_MAX_TID - NVJ_GROUP)
		error = NVJ_ENOSPC;
	if (!error)
		error = make(j, recovered);
	if (!error)
		drop_anchor(j, recovered->sealed_tid + 1);
	platform->release(platform->context, recovered, sizeof(*recovered));
	if (error) {
		free_all(j);
		return error;
	}
	*journal = j;
	return 0;
}

static bool handles_open(struct nvj *j)
{
	for (unsigned slot = 0; slot < NVJ_SLOTS; slot++)
		if (!nvj_handles_ended(j, slot))
			return true;
	for (unsigned i = 0; i < NVJ_CPUS; i++)
		if (nvj_load_sc(&j->cpu[i].reserved))
			return true;
	return false;
}

int nvj_close(struct nvj *j)
{
	int error;

	if (handles_open(j))
		return NVJ_EBUSY;
	error = nvj_commit_to(j, 0);
	if (!error)
		error = nvj_checkpoint(j);
	free_all(j);
	return error;
}

void nvj_abandon(struct nvj *j)
{
	free_all(j);
}

void nvj_abort_at(struct nvj *j, int error, uint64_t block)
{
	int none = 0;

	if (!nvj_replace_sc(&j->aborted, &none, error))
		return;
	nvj_or_sc(&j->hold, NVJ_HOLD_ABORTED);
	/*
	 * Wakes all waiting threads, because the awaited event may never come.
	 */
	j->platform.wake(j->platform.context, &j->hold);
	nvj_ring_bell(&j->credited, &j->platform);
	nvj_ring_bell(&j->drained, &j->platform);
	nvj_ring_bell(&j->followers, &j->platform);
	nvj_ring_bell(&j->written, &j->platform);
	nvj_ring_bell(&j->round_ended, &j->platform);
	nvj_ring_bell(&j->work, &j->platform);
	if (j->platform.aborted)
		j->platform.aborted(j->platform.context, error, block);
}

void nvj_abort(struct nvj *j, int error)
{
	nvj_abort_at(j, error < 0 ? error : NVJ_EIO, NVJ_NO_BLOCK);
}

int nvj_aborted(const struct nvj *j)
{
	return nvj_load_sc(&j->aborted);
}
