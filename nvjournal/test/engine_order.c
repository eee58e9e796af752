/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round writes the blocks of each partition by rising number, whatever the order
 * in which they were changed; each once; and the next round begins anew.
 */
#include "engine.h"
#include "lib/random.h"

static struct {
	pthread_mutex_t lock;
	uint64_t last[NVJ_MAX_QUEUES]; /* block + 1 of each queue's last write */
	uint64_t written[ENGINE_BLOCKS];
	int (*start)(void *context, unsigned queue, struct nvj_write *write);
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int start_write(void *context, unsigned queue, struct nvj_write *write)
{
	pthread_mutex_lock(&disk.lock);
	expect(write->block >= disk.last[queue]);
	disk.last[queue] = write->block + 1;
	disk.written[write->block]++;
	pthread_mutex_unlock(&disk.lock);
	return disk.start(context, queue, write);
}

/* Changes count blocks, in the order given, commits, and carries them home in one round. */
static void one_round(struct engine *e, const uint64_t *block, unsigned count, uint8_t value)
{
	for (unsigned n = 0; n < count; n++)
		expect(engine_put(e, block[n], 5, value) > 0);
	expect(nvj_commit(e->journal, 0) == 0);
	memset(disk.last, 0, sizeof(disk.last));
	memset(disk.written, 0, sizeof(disk.written));
	expect(nvj_checkpoint(e->journal) == 0);
	for (unsigned n = 0; n < count; n++) {
		expect(disk.written[block[n]] == 1);
		expect(engine_home(e, block[n])[5] == value);
	}
}

static void shuffle(struct random *random, uint64_t *block, unsigned count)
{
	for (unsigned n = 0; n < count; n++)
		block[n] = n;
	for (unsigned n = count - 1; n > 0; n--) {
		unsigned other = random_below(random, n + 1);
		uint64_t keep = block[n];

		block[n] = block[other];
		block[other] = keep;
	}
}

int main(void)
{
	static uint64_t block[ENGINE_BLOCKS];
	struct random random = random_from(1);

	for (unsigned partitions = 1; partitions <= 8; partitions *= 8)
		for (unsigned workers = 0; workers < 2; workers++) {
			struct engine e;
			uint64_t falling[3] = {300, 200, 100};
			uint8_t value = 3;

			engine_begin(&e, partitions, 8192, workers);
			disk.start = e.platform.platform.start_write;
			engine_stop_workers(&e);
			nvj_abandon(e.journal);
			e.platform.platform.start_write = start_write;
			engine_open(&e);
			one_round(&e, falling, 1, 1);
			one_round(&e, falling, 3, 2);
			for (unsigned count = 1; count <= ENGINE_BLOCKS; count = count * 2 + 1) {
				shuffle(&random, block, count);
				one_round(&e, block, count, value++);
			}
			shuffle(&random, block, ENGINE_BLOCKS);
			one_round(&e, block, ENGINE_BLOCKS, value);
			engine_stop_workers(&e);
			expect(nvj_close(e.journal) == 0);
			engine_end(&e);
		}
	return 0;
}
