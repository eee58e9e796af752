/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations of one thread against a reference: a list of what each
 * block became, and in which transaction. Changes of any bytes, masks exact, too
 * wide or left to the journal, credits too few, revokes, failing disks, memory
 * that runs out, and now and then a crash, after which the disk must be the
 * reference as it was after the last transaction that survived.
 *
 *	property_reference [SEED [SEEDS]]
 */
#include "lib/random.h"
#include "lib/schedule.h"
#include "lib/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 24u
#define HISTORY 4096u
#define LIVES 4u
#define OPERATIONS 120u

struct version {
	uint64_t tid;
	uint32_t block;
	bool any; /* revoked: its content is nobody's */
	uint8_t image[NVJ_BLOCK_BYTES];
};

struct game {
	uint64_t seed;
	struct random random;
	uint32_t partitions;
	size_t region_bytes;
	struct world world;
	struct nvj *journal;
	uint8_t *region, *disk;
	uint8_t image[BLOCKS][NVJ_BLOCK_BYTES];
	uint64_t freed[BLOCKS]; /* the transaction of its revoke; 0: it is in use */
	uint8_t base[BLOCKS][NVJ_BLOCK_BYTES];
	struct version history[HISTORY];
	uint32_t versions;
	uint64_t committed; /* acknowledged */
	uint64_t last_tid;
	uint32_t lines; /* of the last handle */
	uint64_t operations, crashes, errors, refused, nothing, out_of_memory;
};

static struct game game;
static struct {
	uint64_t lives, operations, crashes, errors, refused, nothing, out_of_memory;
} all;

static void failed(const char *what, long long a, long long b)
{
	fprintf(stderr,
		"property_reference: seed %llu, operation %llu: %s (%lld, %lld)\n"
		"  again by: property_reference %llu 1\n",
		(unsigned long long)game.seed, (unsigned long long)game.operations, what, a, b,
		(unsigned long long)game.seed);
	exit(1);
}

static uint32_t below(uint32_t n)
{
	return random_below(&game.random, n);
}

/* --- The reference ------------------------------------------------------- */

static void remember(uint32_t block, uint64_t tid, bool any)
{
	struct version *v = &game.history[game.versions++];

	if (game.versions == HISTORY)
		failed("the test's history is full", HISTORY, 0);
	v->tid = tid;
	v->block = block;
	v->any = any;
	memcpy(v->image, game.image[block], NVJ_BLOCK_BYTES);
}

/* The disk is as after transaction tid, and that becomes the base of the next life. */
static void compare(uint64_t tid)
{
	for (uint32_t b = 0; b < BLOCKS; b++) {
		const uint8_t *is = game.disk + (size_t)b * NVJ_BLOCK_BYTES, *must = game.base[b];

		for (uint32_t i = 0; i < game.versions; i++)
			if (game.history[i].block == b && game.history[i].tid <= tid)
				must = game.history[i].any ? NULL : game.history[i].image;
		if (must != NULL && memcmp(is, must, NVJ_BLOCK_BYTES) != 0) {
			for (unsigned i = 0; i < NVJ_BLOCK_BYTES; i++)
				if (is[i] != must[i])
					failed("a block differs: its number, the byte", b, i);
		}
		memcpy(game.base[b], is, NVJ_BLOCK_BYTES);
		memcpy(game.image[b], is, NVJ_BLOCK_BYTES);
		game.freed[b] = 0;
	}
	game.versions = 0;
}

/* --- Operations ---------------------------------------------------------- */

/* Changes some bytes; returns the lines that truly changed. */
static uint64_t change(uint8_t *image)
{
	uint8_t before[NVJ_BLOCK_BYTES];
	uint64_t mask = 0;
	uint32_t pieces = 1 + below(4);

	memcpy(before, image, NVJ_BLOCK_BYTES);
	while (pieces-- > 0) {
		uint32_t at = below(NVJ_BLOCK_BYTES);
		uint32_t bytes = 1 + below(below(3) == 0 ? 1500 : 80);
		uint8_t with = (uint8_t)below(3);

		for (uint32_t i = at; i < at + bytes && i < NVJ_BLOCK_BYTES; i++)
			image[i] = with == 0 ? 0 : (uint8_t)random_next(&game.random);
	}
	for (unsigned l = 0; l < 64; l++)
		if (memcmp(before + 64 * l, image + 64 * l, 64) != 0)
			mask |= UINT64_C(1) << l;
	return mask;
}

static uint64_t told(uint64_t mask)
{
	switch (below(4)) {
	case 0:
		return mask != 0 ? mask : NVJ_COMPARE;
	case 1:
		return mask | random_next(&game.random) | 1;
	case 2:
		return NVJ_ALL_LINES;
	default:
		return NVJ_COMPARE;
	}
}

/* Takes the handle's blocks; false: memory ran out, the block was not changed. */
static bool take(struct nvj_handle *handle, uint32_t block)
{
	bool create = game.freed[block] != 0;
	const uint8_t *image = below(6) == 0 ? NULL : game.image[block];
	int r = create ? nvj_create(handle, block) : nvj_access(handle, block, image);

	if (r == NVJ_ENOMEM) {
		game.out_of_memory++;
		return false;
	}
	if (r < 0)
		failed("nvj_access", r, block);
	if (create) {
		memset(game.image[block], 0, NVJ_BLOCK_BYTES);
		game.freed[block] = 0;
	}
	return true;
}

static void write_block(struct nvj_handle *handle, uint32_t block, bool touched[BLOCKS])
{
	bool created = game.freed[block] != 0;
	uint8_t before[NVJ_BLOCK_BYTES];
	uint64_t mask;
	int r;

	if (!take(handle, block))
		return;
	touched[block] = true;
	memcpy(before, game.image[block], NVJ_BLOCK_BYTES);
	mask = below(12) == 0 ? 0 : change(game.image[block]);
	if (below(3) == 0)
		r = nvj_log_later(handle, block, game.image[block]);
	else
		r = (below(5) == 0 ? nvj_log_data : nvj_log)(handle, block, game.image[block],
							     told(mask));
	if (r == NVJ_ENOSPC && !created) {
		/* More than its credits: nothing was logged; the caller reverts it. */
		game.refused++;
		memcpy(game.image[block], before, NVJ_BLOCK_BYTES);
		r = 0;
	} else if (r == NVJ_ENOSPC) {
		r = nvj_extend(handle, NVJ_BLOCK_CREDITS);
		if (r == 0)
			r = nvj_log(handle, block, game.image[block], NVJ_COMPARE);
	}
	if (r < 0)
		failed("nvj_log", r, block);
	game.nothing += r == 0;
	game.lines += (uint32_t)r;
	if ((uint32_t)r > NVJ_BLOCK_CREDITS)
		failed("nvj_log took", r, block);
}

/* A handle of several blocks. Its transaction, or 0 if the journal is aborted. */
static uint64_t one_handle(void)
{
	bool touched[BLOCKS] = {false}, revoked[BLOCKS] = {false};
	uint32_t count = 1 + below(below(4) == 0 ? 10 : 3);
	uint32_t most = nvj_max_credits(game.journal), credits = count * NVJ_BLOCK_CREDITS;
	struct nvj_handle handle;
	uint64_t tid;
	int r;

	game.lines = 0;
	r = nvj_start(game.journal, &handle, most + 1);
	if (r != NVJ_ENOSPC && r != NVJ_EROFS)
		failed("more credits than there are", r, most);
	if (credits > most) {
		credits = most;
		count = most / NVJ_BLOCK_CREDITS;
	}
	if (below(3) == 0)
		credits = 1 + below(credits);
	r = nvj_start(game.journal, &handle, credits);
	if (r == NVJ_EROFS && nvj_aborted(game.journal))
		return 0;
	if (r < 0)
		failed("nvj_start", r, credits);
	if (below(20) == 0 && nvj_close(game.journal) != NVJ_EBUSY)
		failed("nvj_close with a handle open", 0, 0);
	while (count-- > 0) {
		uint32_t block = below(BLOCKS);

		if (below(9) == 0 && game.freed[block] == 0 && handle.credits > 0) {
			r = nvj_revoke(&handle, block);
			if (r == NVJ_ENOMEM)
				continue;
			if (r < 0)
				failed("nvj_revoke", r, block);
			game.lines++;
			game.freed[block] = ~UINT64_C(0);
			revoked[block] = true;
			touched[block] = false;
		} else if (handle.credits >= NVJ_BLOCK_CREDITS || game.freed[block] == 0) {
			write_block(&handle, block, touched);
			if (touched[block])
				revoked[block] = false;
		}
	}
	tid = nvj_stop(&handle);
	if (game.lines != 0)
		game.last_tid = tid;
	for (uint32_t b = 0; b < BLOCKS; b++) {
		if (revoked[b])
			game.freed[b] = tid;
		if (touched[b] || revoked[b])
			remember(b, tid, revoked[b]);
	}
	return tid;
}

/* logged: something was, in that transaction; else there is nothing to commit. */
static bool commit(uint64_t tid, bool logged)
{
	int r = nvj_commit(game.journal, tid);

	if (r < 0 && nvj_aborted(game.journal))
		return false;
	if (r < 0)
		failed("nvj_commit", r, (long long)tid);
	if (logged && nvj_committed(game.journal) < tid)
		failed("it is not committed", (long long)nvj_committed(game.journal),
		       (long long)tid);
	game.committed = nvj_committed(game.journal);
	return true;
}

static void use_freed(uint32_t block)
{
	if (game.freed[block] == 0 || !commit(game.freed[block], true))
		return;
	for (unsigned i = 0; i < NVJ_BLOCK_BYTES; i++)
		game.image[block][i] = (uint8_t)random_next(&game.random);
	world_write(&game.world, block, game.image[block]);
	remember(block, game.freed[block], false);
}

static void look(uint32_t block)
{
	uint8_t image[NVJ_BLOCK_BYTES];

	if (game.freed[block] != 0)
		return;
	if (!nvj_peek(game.journal, block, image))
		memcpy(image, game.disk + (size_t)block * NVJ_BLOCK_BYTES, NVJ_BLOCK_BYTES);
	if (memcmp(image, game.image[block], NVJ_BLOCK_BYTES) != 0)
		failed("nvj_peek: the block differs", block, 0);
}

/* --- A life -------------------------------------------------------------- */

static int count_committed(void *context, uint32_t partition, const struct nvj_disk_record *record,
			   const void *lines, bool committed)
{
	uint64_t *counts = context;

	(void)partition;
	(void)lines;
	counts[committed ? record->kind == NVJ_REVOKE ? 1 : 0 : 2]++;
	return 0;
}

/* nvj_check and nvj_walk say what nvj_recover will do, and change nothing. */
static void check_then_recover(void)
{
	struct nvj_report would, did;
	uint64_t counts[3] = {0};
	uint8_t *before = malloc(game.region_bytes);
	int r;

	memcpy(before, game.region, game.region_bytes);
	r = nvj_check(&game.world.nvj_region, &game.world.platform, &would);
	if (r < 0 || would.findings != 0)
		failed("nvj_check", r, would.findings);
	r = nvj_walk(&game.world.nvj_region, &game.world.platform, count_committed, counts);
	if (r < 0)
		failed("nvj_walk", r, 0);
	if (memcmp(before, game.region, game.region_bytes) != 0)
		failed("nvj_check or nvj_walk changed the region", 0, 0);
	free(before);
	if (counts[0] != would.records + would.revoked || counts[2] != would.uncommitted)
		failed("nvj_walk shows other records than nvj_check counts", (long long)counts[0],
		       (long long)(would.records + would.revoked));
	r = nvj_recover(&game.world.nvj_region, &game.world.platform, &did);
	if (r < 0 || did.findings != 0)
		failed("nvj_recover", r, did.findings);
	if (did.committed_tid != would.committed_tid || did.records != would.records ||
	    did.revoked != would.revoked || did.transactions != would.transactions)
		failed("nvj_recover did other than nvj_check said", (long long)did.records,
		       (long long)would.records);
	if (did.committed_tid < game.committed)
		failed("what was acknowledged is lost", (long long)did.committed_tid,
		       (long long)game.committed);
	compare(did.committed_tid);
}

static void operate(void)
{
	uint64_t tid;

	game.operations++;
	switch (below(12)) {
	case 0:
		look(below(BLOCKS));
		break;
	case 1:
		if (nvj_checkpoint(game.journal) < 0 && !nvj_aborted(game.journal))
			failed("nvj_checkpoint", 0, 0);
		break;
	case 2:
		use_freed(below(BLOCKS));
		break;
	default:
		tid = one_handle();
		if (below(5) == 0)
			commit(below(4) == 0 ? 0 : tid, game.lines != 0);
		break;
	}
}

static void one_life(void)
{
	struct nvj_options options = {.checkpoint_percent = below(3) * 40};
	struct nvj_report report;
	uint32_t operations = below(OPERATIONS);
	int r;

	game.world.allocations_until_error = below(6) == 0 ? 1 + below(12) : 0;
	r = nvj_open(&game.journal, &game.world.nvj_region, &game.world.platform, &options,
		     &report);
	game.world.allocations_until_error = 0;
	if (r == NVJ_ENOMEM) {
		game.out_of_memory++;
		if (game.world.allocated != 0)
			failed("nvj_open failed and keeps memory", game.world.allocated, 0);
		r = nvj_open(&game.journal, &game.world.nvj_region, &game.world.platform, &options,
			     &report);
	}
	if (r < 0)
		failed("nvj_open", r, report.findings);
	r = nvj_allow_later(game.journal, below(nvj_max_credits(game.journal) / 2 + 1));
	if (r < 0)
		failed("nvj_allow_later", r, 0);
	game.committed = 0;
	game.last_tid = 0;
	game.world.writes_until_error = below(4) == 0 ? 1 + below(60) : 0;
	while (operations-- > 0 && !nvj_aborted(game.journal)) {
		if (below(20) == 0)
			game.world.allocations_until_error = 1 + below(4);
		operate();
		game.world.allocations_until_error = 0;
	}
	if (nvj_aborted(game.journal)) {
		struct nvj_handle handle;

		game.errors++;
		if (nvj_aborted(game.journal) != NVJ_EIO || game.world.aborted != NVJ_EIO)
			failed("aborted, but not by the disk", nvj_aborted(game.journal),
			       game.world.aborted);
		if (nvj_start(game.journal, &handle, 2) != NVJ_EROFS)
			failed("aborted, and a handle starts", 0, 0);
		if (nvj_commit(game.journal, game.last_tid) == 0 &&
		    nvj_committed(game.journal) < game.last_tid)
			failed("aborted, and a commit succeeds that was not made",
			       (long long)game.last_tid, 0);
	}
	if (below(3) == 0 || nvj_aborted(game.journal)) {
		r = nvj_close(game.journal);
		if (r < 0 && !game.errors && game.world.writes_until_error == 0)
			failed("nvj_close", r, 0);
	} else {
		game.crashes++;
		nvj_abandon(game.journal);
	}
	if (game.world.allocated != 0)
		failed("memory was not released", game.world.allocated, 0);
	game.world.writes_until_error = 0;
	game.world.aborted = 0;
	check_then_recover();
	if (game.world.wrong[0] != 0)
		failed(game.world.wrong, 0, 0);
	trace_clear(&game.world.trace);
}

static void play(void *argument)
{
	struct nvj_format_options format = {.partitions = game.partitions,
					    .commits = 16u << below(3),
					    .placement = below(2) ? NVJ_PLACE_CPU : NVJ_PLACE_BLOCK,
					    .uuid = {(uint8_t)(game.seed | 1)}};
	int r;

	(void)argument;
	r = nvj_format(&game.world.nvj_region, &format);
	if (r < 0)
		failed("nvj_format", r, (long long)game.region_bytes);
	for (unsigned life = 0; life < LIVES; life++) {
		game.errors = 0;
		one_life();
		all.errors += game.errors;
		all.lives++;
	}
}

static void one_game(uint64_t seed)
{
	static const uint32_t partitions[] = {1, 1, 2, 3, 8};
	struct schedule *schedule = schedule_new(seed, 1u << 30);

	memset(&game, 0, sizeof(game));
	game.seed = seed;
	game.random = random_from(seed);
	game.partitions = partitions[below(5)];
	game.region_bytes = NVJ_COMMITS_OFFSET + 64 * nvj_commit_lines(game.partitions) * 64 +
			    game.partitions * (1024 + below(1500)) * 64;
	game.region_bytes = (game.region_bytes + 4095) / 4096 * 4096;
	game.region = aligned_alloc(4096, game.region_bytes);
	game.disk = aligned_alloc(4096, sizeof(game.base));
	if (game.region == NULL || game.disk == NULL)
		failed("no memory", 0, 0);
	memset(game.region, 0, game.region_bytes);
	for (size_t i = 0; i < sizeof(game.base); i++)
		game.disk[i] = (uint8_t)random_next(&game.random);
	memcpy(game.base, game.disk, sizeof(game.base));
	memcpy(game.image, game.disk, sizeof(game.base));
	world_begin(&game.world, game.region, game.region_bytes, game.disk, BLOCKS, seed);
	schedule_spawn(schedule, "the caller", play, NULL);
	if (schedule_run(schedule) != SCHEDULE_DONE) {
		schedule_print(schedule);
		failed("one thread alone does not come to an end", 0, 0);
	}
	schedule_free(schedule);
	world_end(&game.world);
	free(game.region);
	free(game.disk);
	all.operations += game.operations;
	all.crashes += game.crashes;
	all.refused += game.refused;
	all.nothing += game.nothing;
	all.out_of_memory += game.out_of_memory;
}

int main(int argc, char **argv)
{
	const char *variant = getenv("NVJ_VARIANT");
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t seeds = argc > 2                                      ? strtoull(argv[2], NULL, 0)
			 : variant != NULL && !strcmp(variant, "asan") ? 300
								       : 1500;

	for (uint64_t seed = first; seed < first + seeds; seed++)
		one_game(seed);
	printf("property_reference: %llu seeds, %llu lives, %llu operations, %llu crashes, %llu "
	       "failing disks, %llu times no memory, %llu changes refused, %llu that were none\n",
	       (unsigned long long)seeds, (unsigned long long)all.lives,
	       (unsigned long long)all.operations, (unsigned long long)all.crashes,
	       (unsigned long long)all.errors, (unsigned long long)all.out_of_memory,
	       (unsigned long long)all.refused, (unsigned long long)all.nothing);
	return 0;
}
