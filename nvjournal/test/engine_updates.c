/* SPDX-License-Identifier: GPL-2.0 */
/*
 * No handle of ext4nvj is open while a thread holds back all handles, and no thread waits
 * for ever. This compiles the files of the kernel that do it, updates.c and reserve.c, with
 * lib/linux/sched/mm.h in place of the kernel. Threads start and stop handles, ordinary and
 * reserved ones; two threads hold back all of them; one commits. In some runs it also aborts
 * the journal: then no handle starts any more.
 *
 * Built with NVJ_SCHEDULE, a scheduler runs the threads one at a time, and may switch at
 * each atomic operation. Otherwise they are threads of the host: for ThreadSanitizer, and
 * for the order of memory accesses of this processor.
 *
 * ThreadSanitizer also reports an access that was ordered by chance only. So one more
 * test has two threads, which share nothing but the counts of reserved handles.
 *
 *	engine_updates [SCHEDULES [FIRST-SEED]]
 */
#include <sched.h>

#include "../core/journal.h"
#include "engine.h"
#include "lib/random.h"
#include "lib/schedule.h"

#include <linux/sched/mm.h>

/* --- As in kernel/jbd2/journal.h and kernel/include/linux/jbd2.h ---------------- */

#define NVJK_JOURNAL_H

typedef struct {
	int none;
} journal_t;

typedef struct {
	journal_t *h_journal;
	unsigned int h_reserved, h_type, h_line_no;
} handle_t;

struct nvjk_journal {
	journal_t journal;
	struct nvj *nvj;
	u64 newest;
	u32 held_back;
	struct mutex updates_mutex;
	unsigned int updates_nofs;
	int *reserved;
	u32 reserved_credits;
	u32 max_credits;
	wait_queue_head_t reserved_wait;
	wait_queue_head_t ended_wait;
	wait_queue_head_t updates_wait;
};

struct nvjk_handle {
	handle_t handle;
	unsigned int nofs;
	bool counted_reserved;
	struct nvj_reserved reserved;
	struct nvj_handle nvj;
};

#define nvjk_of(j) container_of(j, struct nvjk_journal, journal)
#define nvjk_handle_of(h) container_of(h, struct nvjk_handle, handle)

struct task {
	void *journal_info;
	struct random random;
	unsigned cpu;
};

static struct task *current_task(void);

#define current current_task()

static int nvjk_commit(struct nvjk_journal *j, u64 tid)
{
	return nvj_commit(j->nvj, tid);
}

static void nvjk_call_back(struct nvjk_journal *j)
{
	(void)j;
}

static void nvjk_pins_sweep(struct nvjk_journal *j, bool all)
{
	(void)j;
	(void)all;
}

static void nvjk_handle_free(struct nvjk_handle *h)
{
	free(h);
}

static void nvjk_handle_started(struct nvjk_handle *h)
{
	(void)h;
}

bool nvjk_any_reserved(struct nvjk_journal *j);
void nvjk_reserve_back(struct nvjk_journal *j, u32 credits);

#include "../kernel/jbd2/updates.h"
#include "../kernel/jbd2/updates.c"
#include "../kernel/jbd2/reserve.c"

/* --- The threads ------------------------------------------------------------------ */

#define WRITERS 3u
#define HOLDERS 2u
#define RESERVED 8u /* credits of a reserved handle */
/* And one that ends what the writers have reserved, and one that commits. */
#define THREADS (WRITERS + HOLDERS + 2)
#ifdef NVJ_SCHEDULE
#define HANDLES 6u /* of each writer */
#define HOLDS 3u   /* of each holder */
#else
#define HANDLES 4000u
#define HOLDS 400u
#endif

static struct engine engine;
static struct nvjk_journal journal;
static int reserved[TEST_CPUS];
static struct task tasks[THREADS];
static struct nvjk_handle *passed[WRITERS]; /* to the thread that ends them */
static uint32_t passes, ended[WRITERS];     /* words to wait at */
static uint32_t writers_left;
static uint32_t open_handles, open_handle[WRITERS]; /* their count; the number of each, or 0 */
/* A handle reads it, a holder changes it. Not atomic: ThreadSanitizer looks at it. */
static volatile uint64_t guarded;
static uint64_t seed;
static bool running, aborts;

#ifndef NVJ_SCHEDULE
static __thread unsigned number;
#endif

static struct task *current_task(void)
{
#ifdef NVJ_SCHEDULE
	return &tasks[schedule_self()];
#else
	return &tasks[number];
#endif
}

static bool once_in(uint32_t n)
{
	return random_once_in(&current->random, n);
}

unsigned test_cpu(void)
{
	/* The kernel may move a thread at any time. */
	if (once_in(8))
		current->cpu = random_below(&current->random, TEST_CPUS);
	return current->cpu;
}

const struct nvj_platform *test_platform(void)
{
	return &engine.journal->platform;
}

static void wait_while(const uint32_t *word, uint32_t value)
{
	while (nvj_load_sc(word) == value)
		test_platform()->wait(test_platform()->context, word, value, 0);
}

static void ring(uint32_t *word)
{
	nvj_add_sc(word, 1);
	test_platform()->wake(test_platform()->context, word);
}

static void pause_now_and_then(void)
{
#ifdef NVJ_SCHEDULE
	schedule_point();
#else
	if (once_in(4))
		sched_yield();
#endif
}

static bool aborted(void)
{
	return nvj_aborted(engine.journal);
}

static void change(struct nvjk_handle *h, unsigned block, uint8_t value)
{
	if (nvj_access(&h->nvj, block, engine.block[block])) {
		expect(aborted());
		return;
	}
	engine.block[block][0] = value;
	expect(nvj_log(&h->nvj, block, engine.block[block], NVJ_COMPARE) >= 0 || aborted());
}

/* In an open handle: nobody holds back all handles. block: NULL, or that to change. */
static void work_in_handle(struct nvjk_handle *h, const unsigned *block)
{
	uint64_t before = guarded;

	pause_now_and_then();
	if (block && once_in(3))
		change(h, *block, once_in(2) ? 1 : 2);
	pause_now_and_then();
	expect(guarded == before);
}

/* As in handle.c. */
static void stop(struct nvjk_handle *h)
{
	nvj_count(&open_handles, -1);
	(void)nvj_stop(&h->nvj);
	nvjk_updates_ended(&journal);
}

/* Passes a reserved handle to the thread that ends them. False: the journal was aborted. */
static bool pass_reserved(struct nvjk_handle *h, unsigned writer)
{
	struct nvjk_handle *other = calloc(1, sizeof(*other));

	expect(other);
	other->handle.h_journal = &journal.journal;
	if (nvjk_reserve(h, other, RESERVED)) {
		expect(aborted());
		free(other);
		return false;
	}
	other->handle.h_reserved = 1;
	nvj_store_sc(&passed[writer], other);
	ring(&passes);
	return true;
}

static void write_with_handles(unsigned writer)
{
	for (unsigned i = 0; i < HANDLES; i++) {
		struct nvjk_handle h = {.handle.h_journal = &journal.journal};
		uint32_t before = nvj_load(&ended[writer]);
		bool has_passed = once_in(3);

		if (has_passed)
			nvjk_reserve_await(&journal, RESERVED);
		if (nvjk_updates_start(&journal, &h, 2 * NVJ_BLOCK_CREDITS, false)) {
			expect(aborted());
			if (has_passed)
				nvjk_reserve_back(&journal, RESERVED);
			break;
		}
		nvj_raise_sc(&journal.newest, h.nvj.tid); /* as in transaction.c */
		nvj_count(&open_handles, 1);
		nvj_store_sc(&open_handle[writer], i + 1);
		work_in_handle(&h, &writer);
		if (has_passed) {
			has_passed = pass_reserved(&h, writer);
			if (!has_passed)
				nvjk_reserve_back(&journal, RESERVED);
			/* As a handle that waits for a page that is being written. */
			else if (once_in(2))
				wait_while(&ended[writer], before);
		}
		nvj_store_sc(&open_handle[writer], 0);
		stop(&h);
		if (has_passed)
			wait_while(&ended[writer], before);
	}
	nvj_sub_sc(&writers_left, 1);
	ring(&passes);
}

static void end_reserved(struct nvjk_handle *h)
{
	expect(nvj_load(&journal.reserved_credits) <= 2 * RESERVED);
	if (once_in(4)) {
		jbd2_journal_free_reserved(&h->handle);
		return;
	}
	if (jbd2_journal_start_reserved(&h->handle, 0, 0)) {
		expect(aborted());
		return;
	}
	nvj_count(&open_handles, 1);
	work_in_handle(h, NULL);
	stop(h);
	nvjk_reserved_ended(&journal);
	nvjk_handle_free(h);
}

static void end_all_reserved(void)
{
	for (;;) {
		uint32_t seen = nvj_load_sc(&passes), left = nvj_load_sc(&writers_left);

		for (unsigned writer = 0; writer < WRITERS; writer++) {
			struct nvjk_handle *h = nvj_load_sc(&passed[writer]);

			if (!h)
				continue;
			nvj_store_sc(&passed[writer], NULL);
			end_reserved(h);
			ring(&ended[writer]);
		}
		if (!left)
			return;
		wait_while(&passes, seen);
	}
}

static void hold_back(void)
{
	for (unsigned i = 0; i < HOLDS; i++) {
		jbd2_journal_lock_updates(&journal.journal);
		expect(!nvj_load(&open_handles));
		guarded++;
		pause_now_and_then();
		/* As ext4 does before a freeze. */
		if (once_in(3))
			expect(jbd2_journal_flush(&journal.journal, 0) == 0 || aborted());
		expect(!nvj_load(&open_handles) && !nvjk_any_reserved(&journal));
		guarded++;
		jbd2_journal_unlock_updates(&journal.journal);
		pause_now_and_then();
	}
}

/* An open handle may log later what it has changed already: so a flush waits for it. */
static void flush(void)
{
	uint32_t open[WRITERS];

	for (unsigned writer = 0; writer < WRITERS; writer++)
		open[writer] = nvj_load_sc(&open_handle[writer]);
	if (jbd2_journal_flush(&journal.journal, 0)) {
		expect(aborted());
		return;
	}
	for (unsigned writer = 0; writer < WRITERS; writer++)
		expect(!open[writer] || nvj_load_sc(&open_handle[writer]) != open[writer]);
}

/* So that handles are in several transactions. */
static void commit(void)
{
	for (unsigned i = 0; i < HANDLES; i++) {
		if (once_in(3))
			flush();
		else
			expect(nvj_commit(engine.journal, 0) == 0 || aborted());
		pause_now_and_then();
		if (aborts && i == HANDLES / 2)
			nvj_abort(engine.journal, NVJ_EIO);
	}
}

static void run_thread(unsigned n)
{
	if (n < WRITERS)
		write_with_handles(n);
	else if (n < WRITERS + HOLDERS)
		hold_back();
	else if (n == WRITERS + HOLDERS)
		end_all_reserved();
	else
		commit();
}

static void begin(void)
{
	engine_begin(&engine, 2, 4096, false);
	engine.journal->platform.add_here = NULL; /* as in the kernel */
	memset(&journal, 0, sizeof(journal));
	memset(reserved, 0, sizeof(reserved));
	journal.nvj = engine.journal;
	journal.reserved = reserved;
	/* Half of them: at most two handles are reserved. */
	journal.max_credits = 2 * 2 * RESERVED;
	nvjk_updates_init(&journal);
	init_waitqueue_head(&journal.reserved_wait);
	writers_left = WRITERS;
	memset(open_handle, 0, sizeof(open_handle));
	for (unsigned n = 0; n < THREADS; n++)
		tasks[n] = (struct task){.random = random_from(seed * THREADS + n)};
}

static void end(void)
{
	expect(!nvj_handles_open(engine.journal) && !nvjk_any_reserved(&journal));
	expect(!nvj_load(&journal.reserved_credits));
	expect(guarded % (2 * HOLDERS * HOLDS) == 0);
	expect((nvj_close(engine.journal) == 0) == !aborts);
	engine_end(&engine);
}

#ifdef NVJ_SCHEDULE
static void wait_in_schedule(void *context, const uint32_t *word, uint32_t expected, uint64_t ns)
{
	(void)context;
	schedule_wait(word, expected, ns);
}

static void wake_in_schedule(void *context, const uint32_t *word)
{
	(void)context;
	schedule_wake(word);
}

static void yield_in_schedule(void *context)
{
	(void)context;
	schedule_point();
}

static uint64_t now_in_schedule(void *context)
{
	(void)context;
	return schedule_now_ns();
}

static const char *name_of(unsigned n)
{
	if (n < WRITERS)
		return "writer";
	if (n < WRITERS + HOLDERS)
		return "holder";
	return n == WRITERS + HOLDERS ? "reserved" : "commit";
}

static void run_scheduled(void *argument)
{
	run_thread((unsigned)(uintptr_t)argument);
}

static void run_all(void)
{
	struct schedule *schedule = schedule_new(seed, 1u << 22);
	struct nvj_platform host = engine.journal->platform;

	engine.journal->platform.wait = wait_in_schedule;
	engine.journal->platform.wake = wake_in_schedule;
	engine.journal->platform.yield = yield_in_schedule;
	engine.journal->platform.now_ns = now_in_schedule;
	for (unsigned n = 0; n < THREADS; n++)
		schedule_spawn(schedule, name_of(n), run_scheduled, (void *)(uintptr_t)n);
	if (schedule_run(schedule) != SCHEDULE_DONE) {
		schedule_print(schedule);
		exit(1);
	}
	schedule_free(schedule);
	engine.journal->platform = host;
}

#define SCHEDULES 20000u
#else
static void *run_in_thread(void *argument)
{
	number = (unsigned)(uintptr_t)argument;
	run_thread(number);
	return NULL;
}

static void run_all(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t n = 0; n < THREADS; n++)
		expect(pthread_create(&threads[n], NULL, run_in_thread, (void *)n) == 0);
	for (unsigned n = 0; n < THREADS; n++)
		expect(pthread_join(threads[n], NULL) == 0);
}

#define SCHEDULES 1u

/* Changed in a reserved handle, and read when no handle is reserved any more. */
static uint64_t handed_over;

static void *end_one_reserved(void *argument)
{
	struct nvjk_handle *h = argument;

	number = 1;
	handed_over++;
	jbd2_journal_free_reserved(&h->handle);
	return NULL;
}

/* Who sees no reserved handle sees what they have changed. */
static void hand_over(void)
{
	struct nvjk_handle h = {.handle.h_journal = &journal.journal};
	struct nvjk_handle *other = calloc(1, sizeof(*other));
	pthread_t thread;

	expect(other);
	other->handle.h_journal = &journal.journal;
	other->handle.h_reserved = 1;
	nvjk_reserve_await(&journal, RESERVED);
	expect(nvjk_updates_start(&journal, &h, 2 * NVJ_BLOCK_CREDITS, false) == 0);
	expect(nvjk_reserve(&h, other, RESERVED) == 0);
	(void)nvj_stop(&h.nvj);
	handed_over = 0;
	expect(pthread_create(&thread, NULL, end_one_reserved, other) == 0);
	while (nvjk_any_reserved(&journal))
		sched_yield();
	expect(handed_over == 1);
	expect(pthread_join(thread, NULL) == 0);
}
#endif

static void say_seed(void)
{
	if (running)
		fprintf(stderr, "engine_updates: seed %llu\n", (unsigned long long)seed);
}

int main(int argc, char **argv)
{
	uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : SCHEDULES;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;

	atexit(say_seed);
#ifndef NVJ_SCHEDULE
	begin();
	hand_over();
	expect(nvj_close(engine.journal) == 0);
	engine_end(&engine);
#endif
	for (seed = first; seed < first + count; seed++) {
		aborts = seed % 4 == 0;
		begin();
		running = true;
		run_all();
		running = false;
		end();
	}
	printf("engine_updates: %llu runs, %llu times all handles were held back\n",
	       (unsigned long long)count, (unsigned long long)(guarded / 2));
	return 0;
}
