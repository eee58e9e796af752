/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The steps of check and recovery of a region, and their order.
 *
 * After a crash during recovery, recovery runs again. Until the tail moves,
 * nothing in the region changes, except that the newest seal is stored again
 * with the same value. So the next run finds the same transactions and replays
 * them again. replay.c explains why the result is the same. When the tail has
 * moved, the transactions are persistent at home, and the next run finds
 * nothing to do.
 */
#include "recover.h"
#include "replay.h"
#include "replay_index.h"

struct pass {
	const struct nvj_scan *scan;
	const struct nvj_platform *platform;
	struct nvj_part *parts;
	struct nvj_part all; /* sums of the first pass */
	bool write;
};

static void examine_part(void *argument, unsigned n)
{
	struct pass *pass = argument;

	nvj_examine(pass->scan, pass->platform, n, &pass->parts[n]);
}

static void replay_part(void *argument, unsigned n)
{
	struct pass *pass = argument;

	nvj_replay(pass->scan, pass->platform, n, pass->write, pass->parts, &pass->all,
		   &pass->parts[n]);
}

static void in_turn(void *context, unsigned count, void (*work)(void *argument, unsigned n),
		    void *argument)
{
	(void)context;
	for (unsigned n = 0; n < count; n++)
		work(argument, n);
}

/*
 * Runs a pass over all partitions. Returns the first error, but damage comes
 * before other errors.
 */
static int run_pass(struct pass *pass, nvj_run *run, void (*work)(void *argument, unsigned n),
		    struct nvj_report *report)
{
	const struct nvj_geometry *g = &pass->scan->geometry;
	int error = 0;

	run(pass->platform->context, g->partitions, work, pass);
	for (uint32_t i = 0; i < g->partitions; i++) {
		const struct nvj_part *part = &pass->parts[i];

		if (part->error == NVJ_EUCLEAN)
			nvj_find(report, NVJ_FOUND_RECORD, part->ring, part->position,
				 nvj_offset_of_line(g, part->ring, part->position));
		if (part->error && error != NVJ_EUCLEAN)
			error = part->error;
	}
	return error;
}

static void sum_up(const struct pass *pass, struct nvj_report *report)
{
	for (uint32_t i = 0; i < pass->scan->geometry.partitions; i++) {
		const struct nvj_part *part = &pass->parts[i];

		report->records += part->records;
		report->revoked += part->changes - part->records;
		report->uncommitted += part->uncommitted;
		report->blocks += part->blocks;
		report->journal_bytes += part->lines * NVJ_LINE_BYTES;
	}
}

/*
 * Stores the newest seal again before the first block is written home. A
 * process that was killed between the store of this seal and its fence may have
 * left the seal in a cache only. We can read it there, but a power failure
 * would lose it. Then half of a transaction that does not count would be at
 * home, or the tail would name a slot without a seal. Older seals were fenced
 * before this one.
 */
static int seal_again(const struct nvj_region *region, const struct nvj_scan *s,
		      struct nvj_report *report)
{
	const struct nvj_persistence *p = region->persistence;
	uint64_t *seal = &nvj_commit_at(&s->geometry, s->sealed_tid)->seal, value;

	if (s->sealed_tid == s->tail_tid)
		return 0;
	if (!nvj_copy_out(region->read, &value, seal, sizeof(value))) {
		nvj_find(report, NVJ_FOUND_COMMIT, 0, s->sealed_tid,
			 nvj_offset_of_commit(&s->geometry, s->sealed_tid));
		return NVJ_EUCLEAN;
	}
	p->store64(p, seal, value);
	/*
	 * The seal is persistent before any block is written home that depends
	 * on it.
	 */
	p->fence(p);
	return 0;
}

static void write_super(const struct nvj_region *region, const struct nvj_scan *s, unsigned copy)
{
	const struct nvj_persistence *p = region->persistence;

	p->write(p, (uint8_t *)region->base + (copy ? NVJ_SUPER_COPY_OFFSET : NVJ_SUPER_OFFSET),
		 &s->super, sizeof(s->super));
}

/*
 * Makes the newest version of an older region. All is at home, and the tail says
 * so: there is no record that both versions would read. One copy is persistent
 * before the other changes, the sound one last.
 */
static void upgrade(const struct nvj_region *region, struct nvj_scan *s)
{
	const struct nvj_persistence *p = region->persistence;
	unsigned first = !(s->super_damaged & 1);

	nvj_super_upgrade(&s->super);
	write_super(region, s, first);
	p->fence(p); /* a crash leaves one sound copy */
	write_super(region, s, !first);
	p->fence(p); /* before the first record of the new version */
	s->geometry.sequenced = true;
}

/* Moves the tail to the last transaction, and writes damaged copies again. */
static int finish(const struct nvj_region *region, const struct nvj_platform *platform,
		  struct nvj_scan *s)
{
	const struct nvj_geometry *g = &s->geometry;
	const struct nvj_persistence *p = region->persistence;
	uint64_t word = nvj_tail_encode(g->seed, s->last_tid);
	/*
	 * In a journal in which nothing was sealed yet, write both superblocks
	 * again. A process that was killed in nvj_format before its last fence
	 * may have left them in a cache only. We can read them there, but a
	 * power failure would lose them, and with them everything that is
	 * committed from now on.
	 */
	unsigned rewrite = s->sealed_tid ? s->super_damaged : 3;

	/*
	 * Flush the disk before the tail moves. When the tail says that blocks
	 * are at home, these records are not read again. So the blocks must be
	 * persistent. After a crash before this, the tail is the old one and
	 * everything is replayed again.
	 */
	if (s->transactions && platform->flush(platform->context))
		return NVJ_EIO;
	/*
	 * Write the tail if one of its copies differs. After a crash between
	 * the two stores the newer copy counts. This also fences. So when
	 * nvj_recover returns, the engine's anchor and first records come after
	 * it.
	 */
	if (!nvj_tail_is(g, 0, word) || !nvj_tail_is(g, 1, word))
		nvj_tail_write(g, p, s->last_tid);
	/*
	 * Write a damaged copy of the superblock again. The other copy is sound
	 * and does not change. So a crash during this leaves the state before
	 * it.
	 */
	if (rewrite & 1)
		write_super(region, s, 0);
	if (rewrite & 2)
		write_super(region, s, 1);
	if (rewrite)
		p->fence(p);
	if (s->super.version < NVJ_FORMAT_VERSION)
		upgrade(region, s);
	return 0;
}

/* Runs both passes. With write, it also makes their results persistent. */
static int check_or_recover(const struct nvj_region *region, const struct nvj_platform *platform,
			    nvj_run *run, bool write, struct nvj_scan *s, struct nvj_report *report)
{
	size_t bytes = s->geometry.partitions * sizeof(struct nvj_part);
	struct pass pass = {.scan = s, .platform = platform, .write = write};
	int error;

	pass.parts = platform->allocate(platform->context, bytes);
	if (!pass.parts)
		return NVJ_ENOMEM;
	/* Nothing is written before everything was examined. */
	error = run_pass(&pass, run, examine_part, report);
	for (uint32_t i = 0; i < s->geometry.partitions; i++) {
		pass.all.changes += pass.parts[i].changes;
		pass.all.revokes += pass.parts[i].revokes;
	}
	if (!error && write)
		error = seal_again(region, s, report);
	if (!error)
		error = run_pass(&pass, run, replay_part, report);
	sum_up(&pass, report);
	if (!error && write)
		error = finish(region, platform, s);
	/* After an error, changes may be missing that no revoke cancelled. */
	if (error)
		report->revoked = 0;
	for (uint32_t i = 0; i < s->geometry.partitions; i++)
		nvj_index_free(platform, pass.parts[i].index);
	platform->release(platform->context, pass.parts, bytes);
	return error;
}

/* The largest object of a finding, in lines: a record of a whole block. */
#define MAX_FOUND_LINES NVJ_BLOCK_CREDITS

static uint32_t found_lines(enum nvj_finding_kind kind)
{
	switch (kind) {
	case NVJ_FOUND_RECORD:
		return MAX_FOUND_LINES;
	case NVJ_FOUND_COMMIT:
		return NVJ_MAX_COMMIT_LINES;
	default:
		return sizeof(struct nvj_disk_super) / NVJ_LINE_BYTES;
	}
}

/*
 * Determines for each finding whether the memory fails, or only its content is
 * wrong.
 */
static void look_for_bad_memory(const struct nvj_region *region, struct nvj_report *report)
{
	uint32_t made = report->findings < NVJ_MAX_FINDINGS ? report->findings : NVJ_MAX_FINDINGS;

	for (uint32_t i = 0; region->read && i < made; i++) {
		struct nvj_finding *f = &report->finding[i];
		uint64_t at = f->offset, end = at + found_lines(f->kind) * NVJ_LINE_BYTES;
		uint8_t line[NVJ_LINE_BYTES];

		for (; at < end && at + sizeof(line) <= region->size_bytes; at += sizeof(line))
			f->unreadable |=
				!nvj_copy_out(region->read, line,
					      (const uint8_t *)region->base + at, sizeof(line));
	}
}

static int begin(const struct nvj_region *region, const struct nvj_platform *platform, nvj_run *run,
		 bool write, struct nvj_report *report, struct nvj_recovered *recovered)
{
	struct nvj_report unasked;
	struct nvj_scan *s;
	int error;

	if (!report)
		report = &unasked;
	__builtin_memset(report, 0, sizeof(*report));
	if (write && !region->persistence)
		return NVJ_EINVAL;
	error = nvj_scan_begin(region, platform, report, &s);
	if (error) {
		look_for_bad_memory(region, report);
		return error;
	}
	error = check_or_recover(region, platform, run ? run : in_turn, write, s, report);
	if (!error && recovered) {
		recovered->geometry = s->geometry;
		recovered->super = s->super;
		recovered->last_tid = s->last_tid;
		recovered->sealed_tid = s->sealed_tid;
		__builtin_memcpy(recovered->high, s->high, sizeof(s->high));
	}
	nvj_scan_end(platform, s);
	look_for_bad_memory(region, report);
	return error;
}

int nvj_check(const struct nvj_region *region, const struct nvj_platform *platform,
	      struct nvj_report *report)
{
	return begin(region, platform, NULL, false, report, NULL);
}

int nvj_recover(const struct nvj_region *region, const struct nvj_platform *platform,
		struct nvj_report *report)
{
	return begin(region, platform, NULL, true, report, NULL);
}

int nvj_recover_with(const struct nvj_region *region, const struct nvj_platform *platform,
		     nvj_run *run, struct nvj_report *report)
{
	return begin(region, platform, run, true, report, NULL);
}

int nvj_recover_into(const struct nvj_region *region, const struct nvj_platform *platform,
		     nvj_run *run, struct nvj_report *report, struct nvj_recovered *recovered)
{
	return begin(region, platform, run, true, report, recovered);
}
