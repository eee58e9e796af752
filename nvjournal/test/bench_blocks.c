/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of blocks that nvjournal is compared with copies each block of a transaction
 * once, as it is when the transaction closes. Nothing is measured here.
 */
#define FILE_BYTES (UINT64_C(1) << 20)
#include "bench/engine_block_journal.c"
#include "bench/worker.c"

#include "expect.h"

#define BLOCKS 3u

static uint8_t line[NVJ_LINE_BYTES];
static struct block_journal *journal;
static struct worker worker;

/* An operation that sets the first line of each of these blocks. */
static void apply(uint8_t value, unsigned count, const uint32_t *blocks)
{
	struct update updates[BLOCKS];
	struct operation o = {.updates = updates, .count = count, .lines = count};

	memset(line, value, sizeof(line));
	for (unsigned n = 0; n < count; n++)
		updates[n] = (struct update){.block = blocks[n],
					     .mask = 1,
					     .lines = line,
					     .index = blocks[n],
					     .line_count = 1};
	expect(block_journal_apply(worker.engine, &worker, &o) == 0);
}

/* The first byte of the block that was written nth of all. */
static uint8_t written(unsigned nth)
{
	uint8_t byte;

	expect(pread(journal->file, &byte, 1, (off_t)nth * NVJ_BLOCK_BYTES) == 1);
	return byte;
}

static void each_block_of_a_transaction_is_copied_once(void)
{
	/* In the file a descriptor is before the blocks, and a commit block after them. */
	apply(1, 2, (const uint32_t[]){0, 1});
	apply(2, 1, (const uint32_t[]){0});
	apply(3, 3, (const uint32_t[]){0, 1, 2});
	apply(4, 1, (const uint32_t[]){2});
	expect(journal->copied == 0);
	expect(block_journal_commit(worker.engine, &worker) == 0);
	expect(journal->copied == 3 && journal->bytes == 5 * NVJ_BLOCK_BYTES);
	expect(written(1) == 3 && written(2) == 3 && written(3) == 4);
}

static void a_change_after_the_close_belongs_to_the_next_transaction(void)
{
	const struct transaction *closed = journal->running;

	apply(5, 1, (const uint32_t[]){1});
	pthread_mutex_lock(&journal->lock);
	freeze(journal, journal->running);
	pthread_mutex_unlock(&journal->lock);
	memset(worker.images + NVJ_BLOCK_BYTES, 6, NVJ_BLOCK_BYTES);
	expect(closed->images[0] == 5);
}

int main(void)
{
	static const struct stream stream;
	struct bench_setup setup = {.stream = &stream, .threads = 1, .directory = "/tmp"};
	struct engine engine = {.name = "jbd2-like"};

	worker = (struct worker){.engine = &engine, .images = calloc(BLOCKS, NVJ_BLOCK_BYTES)};
	expect(worker.images && block_journal_open(&engine, &setup) == 0);
	journal = engine.state;
	each_block_of_a_transaction_is_copied_once();
	a_change_after_the_close_belongs_to_the_next_transaction();
	block_journal_close(&engine);
	free(worker.images);
	return 0;
}
