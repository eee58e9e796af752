/* SPDX-License-Identifier: Apache-2.0 */
#include "checker.h"
#include "crash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hashes of images that were seen, so that each is recovered once. */
struct seen {
	uint64_t *hash;
	size_t room, count;
};

struct checking {
	const struct workload *workload;
	const struct checker_options *options;
	struct checker_counts *counts;
	uint64_t seed;
	uint32_t generation;
	struct workload_run *run;
	struct crash crash;
	struct world world; /* of recoveries */
	struct random random;
	struct seen seen;
	uint8_t *selection;
	uint32_t room;
	size_t point;       /* events before the crash */
	uint64_t committed; /* the highest transaction that was acknowledged */
	bool opened;
	uint64_t anchor, ordered; /* of nvj_open; the last that before_commit was called for */
	size_t keep_point;        /* the next generation begins with an image of this point */
	uint8_t *kept_region, *kept_disk;
	bool kept;
	/* The next generation begins after a kill: what is there for good, and what is not. */
	struct crash next;
	uint64_t next_committed; /* acknowledged by then */
	struct oracle_direct *next_direct;
	uint32_t next_directs;
	bool next_opened;
	/* What the killed one did, as of the kill: for images without its last transaction. */
	struct oracle before;
	bool has_before;
	bool kill;
	/* This one did: until it has opened, what the kill left pending may still be lost. */
	bool killed;
	uint64_t found; /* the last transaction that nvj_open finds */
	/* There is a journal for good; else, until it has opened, none is as good. */
	bool formatted, next_formatted;
	bool half_formatted; /* a copy of its superblock is missing, until it has opened */
};

static bool seen_before(struct seen *s, uint64_t hash)
{
	if (hash == 0)
		hash = 1;
	if (2 * s->count >= s->room) {
		struct seen more = {.room = s->room ? 2 * s->room : 4096};

		more.hash = calloc(more.room, sizeof(uint64_t));
		if (more.hash == NULL)
			abort();
		for (size_t i = 0; i < s->room; i++)
			if (s->hash[i] != 0)
				seen_before(&more, s->hash[i]);
		free(s->hash);
		*s = more;
	}
	for (size_t i = hash & (s->room - 1);; i = (i + 1) & (s->room - 1)) {
		if (s->hash[i] == hash)
			return true;
		if (s->hash[i] == 0) {
			s->hash[i] = hash;
			s->count++;
			return false;
		}
	}
}

/* CRASH_VERBOSE=1: the whole trace to the crash, and what every handle logged. */
static void tell_all(const struct checking *c)
{
	const struct oracle *o = &c->run->oracle;

	for (size_t i = 0; i < c->point; i++) {
		const struct trace_event *e = &c->run->world.trace.event[i];

		printf("    %zu: thread %u %s at %llu, %u bytes, id %u", i, e->thread,
		       trace_name(e->kind), (unsigned long long)e->where, e->bytes, e->id);
		if (e->kind == TRACE_WRITE && e->bytes == sizeof(struct nvj_disk_record)) {
			const struct nvj_disk_record *r = (const void *)e->data;

			if (r->magic == NVJ_RECORD_MAGIC)
				printf(": transaction %llu, block %llu, mask %llx, position %llu",
				       (unsigned long long)r->tid, (unsigned long long)r->block,
				       (unsigned long long)r->mask,
				       (unsigned long long)r->position);
		}
		printf("\n");
	}
	for (uint32_t i = 0; i < o->entries; i++)
		printf("    handle %u, transaction %llu: block %u%s, mask %llx: %d\n",
		       o->entry[i].handle, (unsigned long long)o->entry[i].tid, o->entry[i].block,
		       o->entry[i].revoke ? " revoked" : "", (unsigned long long)o->entry[i].mask,
		       o->entry[i].result);
}

static void violation(struct checking *c, const char *what)
{
	c->counts->violations++;
	if (c->counts->violations > 2)
		return;
	printf("VIOLATION: %s\n  workload \"%s\", seed %llu, generation %u, after event %zu of %zu",
	       what, c->workload->name, (unsigned long long)c->seed, c->generation, c->point,
	       c->run->world.trace.count);
	printf(", %u words and %u sectors pending: ", c->crash.word_count, c->crash.sector_count);
	for (uint32_t i = 0; i < crash_pending(&c->crash) && i < 64; i++)
		putchar(c->selection[i] ? '1' : '0');
	printf("\n  acknowledged: transaction %llu\n", (unsigned long long)c->committed);
	for (size_t i = c->point > 12 ? c->point - 12 : 0; i < c->point; i++) {
		const struct trace_event *e = &c->run->world.trace.event[i];

		printf("    %zu: thread %u %s at %llu, %u bytes\n", i, e->thread,
		       trace_name(e->kind), (unsigned long long)e->where, e->bytes);
	}
	if (getenv("CRASH_VERBOSE") != NULL)
		tell_all(c);
	fflush(stdout);
}

/* An nvj_run: partitions know of no order among them. */
static void in_any_order(void *context, unsigned count, void (*work)(void *argument, unsigned n),
			 void *argument)
{
	struct checking *c = ((struct world *)context)->user;
	unsigned order[NVJ_MAX_PARTITIONS];

	for (unsigned n = 0; n < count; n++) {
		unsigned at = random_below(&c->random, n + 1);

		order[n] = order[at];
		order[at] = n;
	}
	for (unsigned n = 0; n < count; n++)
		work(argument, order[n]);
}

/*
 * While a journal is being made there may be none, which says so: no superblock,
 * or torn ones. Or one, of whose superblock a copy is not there.
 */
static bool none_yet(struct checking *c, int r, struct nvj_report *report)
{
	struct nvj_disk_super super;

	if (c->opened)
		return false;
	if ((!c->formatted || c->half_formatted) && r == 0 && report->findings == 1 &&
	    report->finding[0].kind == NVJ_FOUND_SUPER)
		report->findings = 0;
	return !c->formatted && r < 0 && nvj_read_super(&c->world.nvj_region, &super) == r &&
	       (r == NVJ_ENODATA || r == NVJ_EUCLEAN);
}

/* Recovers the image that was chosen, and looks at what became of it. */
static void recover(struct checking *c)
{
	struct nvj_report report, again;
	char text[200];
	int r;

	memset(&report, 0, sizeof(report));
	r = nvj_recover_with(&c->world.nvj_region, &c->world.platform, in_any_order, &report);
	if (none_yet(c, r, &report)) {
		if (!oracle_check(&c->run->oracle, 0, c->crash.disk_image, text, sizeof(text)))
			violation(c, text);
	} else if (r < 0 || report.findings != 0) {
		snprintf(text, sizeof(text), "recovery says: %s; %u findings, the first of kind %d",
			 r < 0 ? nvj_strerror(r) : "well", report.findings, report.finding[0].kind);
		violation(c, text);
	} else if (report.committed_tid < c->committed) {
		snprintf(text, sizeof(text), "transaction %llu was acknowledged, %llu recovered",
			 (unsigned long long)c->committed,
			 (unsigned long long)report.committed_tid);
		violation(c, text);
	} else if (c->opened && report.committed_tid > c->anchor &&
		   report.committed_tid > c->ordered) {
		violation(c, "a transaction is committed that before_commit was not called for");
	} else if (c->killed && !c->opened && report.committed_tid < c->found) {
		/* Without what the killed process wrote last: then nothing of it is at home. */
		if (c->has_before && !oracle_check(&c->before, report.committed_tid,
						   c->crash.disk_image, text, sizeof(text)))
			violation(c, text);
	} else if (!oracle_check(&c->run->oracle, report.committed_tid, c->crash.disk_image, text,
				 sizeof(text))) {
		violation(c, text);
	} else if (random_once_in(&c->random, 16)) {
		c->counts->recovered_twice++;
		memset(&again, 0, sizeof(again));
		r = nvj_recover(&c->world.nvj_region, &c->world.platform, &again);
		if (r < 0 || !again.clean || again.blocks != 0 || again.findings != 0)
			violation(c, "recovered a second time, it is not clean");
		else if (!oracle_check(&c->run->oracle, report.committed_tid, c->crash.disk_image,
				       text, sizeof(text)))
			violation(c, "recovered a second time, the content is another");
	}
	if (c->world.wrong[0] != 0) {
		violation(c, c->world.wrong);
		c->world.wrong[0] = 0;
	}
	if (c->world.allocated != 0) {
		violation(c, "recovery keeps memory");
		c->world.allocated = 0;
	}
}

static bool enough(const struct checking *c)
{
	return (c->options->stop_at_violation && c->counts->violations > 0) ||
	       c->counts->violations >= 100 ||
	       (c->options->most_images != 0 && c->counts->images >= c->options->most_images);
}

/* Tries the selection; false if that image was seen before. */
static bool try(struct checking *c)
{
	uint64_t hash = crash_choose(&c->crash, c->selection);
	bool fresh = !seen_before(&c->seen, random_mix(hash) ^ random_mix(c->committed + 1));

	if (!c->kill && !c->kept && c->point >= c->keep_point && random_once_in(&c->random, 3)) {
		memcpy(c->kept_region, c->crash.image, c->crash.region_bytes);
		memcpy(c->kept_disk, c->crash.disk_image, c->crash.disk_bytes);
		c->kept = true;
	}
	if (fresh) {
		c->counts->images++;
		if (!c->formatted && !c->opened)
			c->counts->in_format++;
		else if (!c->opened)
			c->counts->in_recovery++;
		c->counts->by_pages += c->workload->plain_file;
		recover(c);
	}
	crash_revert(&c->crash, &c->world.trace);
	trace_clear(&c->world.trace);
	return fresh;
}

/*
 * What a kernel leaves of a file whose pages it wrote back when it liked: each page
 * as it was at some time; and now and then each sector of a page by itself.
 */
static void sectors_of_a_file(struct checking *c, uint32_t pending)
{
	uint32_t unit = random_once_in(&c->random, 4) ? CRASH_SECTOR_BYTES : 4096;
	uint32_t salt = (uint32_t)random_next(&c->random);

	for (uint32_t i = 0; i < pending; i++) {
		uint64_t which = i < c->crash.word_count
					 ? 8 * (uint64_t)c->crash.words[i].word / unit
					 : UINT64_MAX - (i - c->crash.word_count);
		/* Of those that have no time: it is there or not. */
		uint64_t until = random_mix(which ^ salt) % (c->crash.word_count + 1);

		c->selection[i] = i < c->crash.word_count ? i < until : until & 1;
	}
}

static void random_selection(struct checking *c, uint32_t pending)
{
	if (c->workload->plain_file && !random_once_in(&c->random, 3)) {
		sectors_of_a_file(c, pending);
		return;
	}
	/* By words or by lines (8 words that came together), many or few. */
	uint32_t of = random_below(&c->random, 9) + 1, run = random_once_in(&c->random, 2) ? 1 : 8;

	for (uint32_t i = 0; i < pending; i += run) {
		uint8_t there = random_below(&c->random, 10) < of;

		for (uint32_t k = i; k < i + run && k < pending; k++)
			c->selection[k] = there;
	}
}

/* For a selection of all that is pending. */
static void find_room(struct checking *c)
{
	if (crash_pending(&c->crash) < c->room)
		return;
	c->room = 2 * crash_pending(&c->crash) + 64;
	free(c->selection);
	c->selection = malloc(c->room);
	if (c->selection == NULL)
		abort();
}

/* What the caller had written himself by now. */
static void keep_directs(struct checking *c)
{
	const struct oracle *o = &c->run->oracle;

	c->next_directs = o->directs_started;
	c->next_direct = malloc((o->directs + 1) * sizeof(*o->direct));
	if (c->next_direct == NULL)
		abort();
	if (o->directs != 0)
		memcpy(c->next_direct, o->direct, o->directs * sizeof(*o->direct));
}

/* The oracle of the process that was killed becomes the one before. */
static void keep_oracle(struct checking *c)
{
	oracle_end(&c->before);
	c->has_before = c->kill && c->kept && c->next_opened;
	if (c->has_before) {
		c->before = c->run->oracle;
		free(c->before.direct);
		c->before.direct = c->next_direct;
		c->before.directs_started = c->next_directs;
		c->next_direct = NULL;
		memset(&c->run->oracle, 0, sizeof(c->run->oracle));
	}
	free(c->next_direct);
	c->next_direct = NULL;
}

/* The process is killed here: the next one sees all that was written. */
static void keep_killed(struct checking *c)
{
	struct crash *now = &c->crash;
	const struct trace nothing = {0};

	crash_inherit(&c->next, now);
	c->next_committed = c->committed;
	c->next_formatted = c->formatted || c->opened;
	c->next_opened = c->opened;
	keep_directs(c);
	memset(c->selection, 1, crash_pending(now));
	crash_choose(now, c->selection);
	memcpy(c->kept_region, now->image, now->region_bytes);
	memcpy(c->kept_disk, now->disk_image, now->disk_bytes);
	crash_revert(now, &nothing);
	c->kept = true;
}

/* Images of the point where the crash state is now. */
static void point(struct checking *c)
{
	uint32_t pending = crash_pending(&c->crash), most = c->options->images_per_point;

	c->counts->points++;
	find_room(c);
	if (c->kill && !c->kept && c->point >= c->keep_point)
		keep_killed(c);
	if (pending < 20 && (UINT64_C(1) << pending) <= most) {
		for (uint32_t bits = 0; bits >> pending == 0 && !enough(c); bits++) {
			for (uint32_t i = 0; i < pending; i++)
				c->selection[i] = bits >> i & 1;
			try(c);
		}
		c->counts->whole_points++;
		return;
	}
	/* All, none; one missing, one alone; then by chance. */
	memset(c->selection, 1, pending);
	try(c);
	memset(c->selection, 0, pending);
	try(c);
	for (uint32_t i = 0; i < most / 4 && !enough(c); i++) {
		uint32_t one = random_below(&c->random, pending);

		memset(c->selection, i & 1, pending);
		c->selection[one] ^= 1;
		try(c);
	}
	/* What came first is there, what came later is not. */
	for (uint32_t i = 0; i < most / 8 && !enough(c); i++) {
		uint32_t first = random_below(&c->random, pending);

		memset(c->selection, 1, first);
		memset(c->selection + first, 0, pending - first);
		try(c);
	}
	for (uint32_t i = 0; i < most && !enough(c); i++) {
		random_selection(c, pending);
		try(c);
	}
}

static void apply(struct checking *c, const struct trace_event *e)
{
	struct oracle *o = &c->run->oracle;

	crash_apply(&c->crash, e);
	if (e->kind == TRACE_COMMITTED && e->where > c->committed)
		c->committed = e->where;
	else if (e->kind == TRACE_DIRECT)
		o->directs_started = e->id + 1;
	else if (e->kind == TRACE_DIRECT_DONE)
		o->direct[e->id].done = true;
	else if (e->kind == TRACE_ORDERED && e->where > c->ordered)
		c->ordered = e->where;
	else if (e->kind == TRACE_FORMATTED) {
		c->formatted = true;
		c->half_formatted = false;
	} else if (e->kind == TRACE_OPENED) {
		c->opened = true;
		c->anchor = e->where;
		if (c->found > c->committed)
			c->committed = c->found;
	}
}

static void count(struct checking *c)
{
	const struct nvj_statistics *s = &c->run->statistics;

	c->counts->generations++;
	c->counts->in_threads += c->workload->recover_with != 0;
	c->counts->merged += s->merged;
	c->counts->wraps += s->ring_lines ? s->record_lines / s->ring_lines / s->partitions : 0;
	c->counts->start_waits += s->start_waits;
	c->counts->frozen += s->frozen;
	c->counts->checkpoints += s->checkpoints;
	c->counts->revokes += s->revokes;
}

/* The image has the workload's own journal. */
static bool is_formatted(struct checking *c)
{
	struct nvj_disk_super super;

	return !c->workload->formats || (nvj_read_super(&c->world.nvj_region, &super) == 0 &&
					 super.uuid[0] == WORKLOAD_UUID);
}

/* One generation: runs on region and disk, which become an image of a crash of it. */
static bool generation(struct checking *c, uint8_t *region, uint8_t *disk)
{
	size_t bytes = workload_region_bytes(c->workload);
	size_t disk_bytes = (size_t)c->workload->blocks * NVJ_BLOCK_BYTES;
	const struct trace *trace;

	c->killed = c->kill;
	if (c->killed)
		c->crash = c->next;
	else
		crash_begin(&c->crash, region, bytes, disk, disk_bytes);
	c->next = (struct crash){0};
	c->counts->kills += c->killed;
	c->kill = c->generation + 1 < c->workload->generations && random_once_in(&c->random, 3);
	/* Its own content is known once it is recovered: the oracle begins with that. */
	world_begin(&c->world, c->crash.image, bytes, c->crash.disk_image, c->workload->blocks, 0);
	c->world.user = c;
	c->kept_region = region;
	c->kept_disk = disk;
	c->kept = false;
	c->opened = false;
	c->ordered = 0;
	/* Hashes count from the image that this generation begins with. */
	free(c->seen.hash);
	c->seen = (struct seen){0};
	c->point = 0;
	if (!workload_start(c->run, c->workload, region, disk, c->seed * 1000 + c->generation)) {
		violation(c, c->run->wrong);
	} else {
		struct nvj_report report;

		memset(&report, 0, sizeof(report));
		find_room(c);
		memset(c->selection, 1, crash_pending(&c->crash));
		crash_choose(&c->crash, c->selection);
		c->formatted = is_formatted(c);
		if (nvj_recover(&c->world.nvj_region, &c->world.platform, &report) < 0 &&
		    c->formatted)
			violation(c, "the image to begin with is not recovered");
		c->half_formatted = c->workload->formats && report.findings == 1 &&
				    report.finding[0].kind == NVJ_FOUND_SUPER;
		if (c->killed)
			c->formatted = c->next_formatted;
		c->found = report.committed_tid;
		c->committed = c->killed ? c->next_committed : c->found;
		memcpy(c->run->oracle.initial, c->crash.disk_image, disk_bytes);
		crash_revert(&c->crash, &c->world.trace);
		trace_clear(&c->world.trace);
		trace = &c->run->world.trace;
		c->keep_point = random_below(&c->random, (uint32_t)trace->count);
		count(c);
		for (c->point = 0; c->point <= trace->count && !enough(c); c->point++) {
			if (c->point > 0)
				apply(c, &trace->event[c->point - 1]);
			if (c->options->one_point_in == 0 ||
			    random_once_in(&c->random, c->options->one_point_in))
				point(c);
		}
	}
	keep_oracle(c);
	workload_end(c->run);
	world_end(&c->world);
	crash_end(&c->crash);
	return c->kept;
}

void checker_run(const struct workload *w, uint64_t seed, const struct checker_options *options,
		 struct checker_counts *counts)
{
	size_t bytes = workload_region_bytes(w), disk_bytes = (size_t)w->blocks * NVJ_BLOCK_BYTES;
	uint8_t *region = aligned_alloc(4096, bytes), *disk = aligned_alloc(4096, disk_bytes);
	struct workload_run run;
	struct checking c = {.workload = w,
			     .options = options,
			     .counts = counts,
			     .seed = seed,
			     .run = &run,
			     .random = random_from(seed)};
	struct nvj_format_options format = {.partitions = w->partitions,
					    .commits = w->commits,
					    .placement = seed % 2 ? NVJ_PLACE_CPU : NVJ_PLACE_BLOCK,
					    .uuid = {1, 2, 3, (uint8_t)seed}};
	struct world world;

	if (region == NULL || disk == NULL)
		abort();
	/* What was in the region before must not matter. */
	for (size_t i = 0; i < bytes; i++)
		region[i] = (uint8_t)random_next(&c.random);
	for (uint32_t i = 0; i < disk_bytes / NVJ_LINE_BYTES; i++)
		oracle_fill(disk + (size_t)i * NVJ_LINE_BYTES,
			    random_once_in(&c.random, 4) ? 0 : 0x40000000u + i);
	world_begin(&world, region, bytes, disk, w->blocks, seed);
	/* The journal's own to be; or what it will be made over: noise, zeros, another journal. */
	if (w->formats && seed % 3 == 1)
		memset(region, 0, bytes);
	if (w->formats)
		format.partitions = 1;
	if ((!w->formats || seed % 3 == 2) && nvj_format(&world.nvj_region, &format) < 0) {
		printf("VIOLATION: nvj_format failed for \"%s\"\n", w->name);
		counts->violations++;
	} else {
		counts->runs++;
		while (c.generation < w->generations && !enough(&c) && generation(&c, region, disk))
			c.generation++;
	}
	world_end(&world);
	free(region);
	free(disk);
	free(c.selection);
	free(c.seen.hash);
	oracle_end(&c.before);
	crash_end(&c.next);
}
