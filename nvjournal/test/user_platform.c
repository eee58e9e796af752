/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform: memory is aligned and zero, waiting ends, additions on a processor are
 * whole, run runs each once, UUIDs are random.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nvjournal_user.h"
#include "user_expect.h"

static struct nvju_platform platform;

static void memory_is_aligned_and_zero(void)
{
	const size_t sizes[] = {1, 64, 100, 4096, 5000, 8192, 1 << 20, 5 << 20};
	const struct nvj_platform *p = &platform.platform;

	for (unsigned n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++)
		for (unsigned again = 0; again < 3; again++) {
			uint8_t *memory = p->allocate(p->context, sizes[n]);

			expect(memory && (uintptr_t)memory % NVJ_LINE_BYTES == 0);
			expect(sizes[n] % 4096 || (uintptr_t)memory % 4096 == 0);
			for (size_t at = 0; at < sizes[n]; at++)
				expect(memory[at] == 0);
			memset(memory, 0xff, sizes[n]);
			p->release(p->context, memory, sizes[n]);
		}
	expect(!p->allocate(p->context, SIZE_MAX));
}

static uint32_t word;

static void *wake_later(void *unused)
{
	const struct nvj_platform *p = &platform.platform;

	(void)unused;
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	p->wake(p->context, &word);
	return NULL;
}

static void waiting_ends(void)
{
	const struct nvj_platform *p = &platform.platform;
	uint64_t began = p->now_ns(p->context);
	pthread_t thread;

	p->wait(p->context, &word, 1, 0); /* is not 1: returns at once */
	p->wait(p->context, &word, 0, 3000000);
	expect(p->now_ns(p->context) > began);
	expect(!pthread_create(&thread, NULL, wake_later, NULL));
	while (!__atomic_load_n(&word, __ATOMIC_SEQ_CST))
		p->wait(p->context, &word, 0, 0);
	pthread_join(thread, NULL);
}

#define ADDERS 6u
#define ADDITIONS 400000u
#define WORDS CPU_SETSIZE

/* Of a processor: what was added on it, and what by who was not there any more. */
static _Alignas(128) struct {
	uint64_t here, elsewhere;
	uint8_t alone[112];
} sums[WORDS];

/* More threads than processors, which take turns, and move. */
static void *add(void *unused)
{
	const struct nvj_platform *p = &platform.platform;

	(void)unused;
	for (unsigned n = 0; n < ADDITIONS; n++) {
		/* Now and then a processor that is perhaps another. */
		unsigned cpu = n % 16 ? p->cpu(p->context) : n / 16 % 2;

		if (!p->add_here(p->context, cpu, &sums[cpu].here, 1))
			__atomic_fetch_add(&sums[cpu].elsewhere, 1, __ATOMIC_RELAXED);
		if (n % 1000 == 0) {
			cpu_set_t one;

			CPU_ZERO(&one);
			CPU_SET(n / 1000 % 2, &one);
			/* Where it may not be there, it stays. */
			(void)sched_setaffinity(0, sizeof(one), &one);
		}
	}
	return NULL;
}

static void additions_here_are_whole(void)
{
	uint64_t here = 0, elsewhere = 0;
	pthread_t threads[ADDERS];

	if (!platform.platform.add_here) {
		printf("no restartable sequences: not tried\n");
		return;
	}
	for (unsigned n = 0; n < ADDERS; n++)
		expect(!pthread_create(&threads[n], NULL, add, NULL));
	for (unsigned n = 0; n < ADDERS; n++)
		pthread_join(threads[n], NULL);
	for (unsigned n = 0; n < WORDS; n++) {
		here += sums[n].here;
		elsewhere += sums[n].elsewhere;
	}
	expect(here + elsewhere == (uint64_t)ADDERS * ADDITIONS);
	expect(here > elsewhere);
	expect(elsewhere > 0);
}

/* Who is stopped behind each instruction is stopped in the midst: nothing may be added. */
static void an_addition_that_is_broken_adds_nothing(void)
{
	const struct nvj_platform *p = &platform.platform;
	pid_t child;
	int status;

	if (!p->add_here)
		return;
	child = fork();
	expect(child >= 0);
	if (child == 0) {
		static uint64_t here;
		unsigned cpu = p->cpu(p->context);
		cpu_set_t one;
		bool added;

		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) ||
		    ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(3);
		raise(SIGSTOP);
		added = p->add_here(p->context, cpu, &here, 5);
		_exit(added || here ? 2 : 0);
	}
	expect(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	do {
		expect(!ptrace(PTRACE_SINGLESTEP, child, NULL, NULL));
		expect(waitpid(child, &status, 0) == child);
	} while (WIFSTOPPED(status));
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static unsigned ran[NVJ_MAX_PARTITIONS];

static void work(void *argument, unsigned n)
{
	expect(argument == ran);
	__atomic_fetch_add(&ran[n], 1, __ATOMIC_RELAXED);
}

static void run_runs_each_once(void)
{
	for (unsigned count = 0; count <= NVJ_MAX_PARTITIONS; count++) {
		memset(ran, 0, sizeof(ran));
		nvju_run(NULL, count, work, ran);
		for (unsigned n = 0; n < NVJ_MAX_PARTITIONS; n++)
			expect(ran[n] == (n < count));
	}
}

static void the_disk_is_behind_it(void)
{
	const struct nvj_platform *p = &platform.platform;
	_Alignas(64) static uint8_t image[NVJ_BLOCK_BYTES] = "home";
	struct nvj_write write = {.block = 3, .image = image};
	struct nvju_disk *disk;

	/* Without a disk: errors, not crashes. */
	expect(p->read(p->context, 3, image) == NVJ_EIO && p->flush(p->context) == NVJ_EIO);
	expect(p->start_write(p->context, 0, &write) == NVJ_EIO);
	expect(nvju_disk_memory(&disk, 10, NULL) == 0);
	nvju_platform_init(&platform, disk);
	expect(p->start_write(p->context, 5, &write) == 0);
	expect(p->finish_write(p->context, 5) == &write && !write.error);
	memset(image, 0, sizeof(image));
	expect(p->read(p->context, 3, image) == 0 && !strcmp((char *)image, "home"));
	expect(p->flush(p->context) == 0);
	nvju_disk_close(disk);
}

static void uuids_differ(void)
{
	uint8_t one[16], two[16];

	nvju_uuid(one);
	nvju_uuid(two);
	expect(memcmp(one, two, 16) && one[6] >> 4 == 4 && one[8] >> 6 == 2);
}

int main(void)
{
	nvju_platform_init(&platform, NULL);
	memory_is_aligned_and_zero();
	waiting_ends();
	additions_here_are_whole();
	an_addition_that_is_broken_adds_nothing();
	run_runs_each_once();
	the_disk_is_behind_it();
	uuids_differ();
	return 0;
}
