/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What kernel/jbd2/updates.c and reserve.c use of the kernel, for engine_updates.c: in
 * place of the kernel's header of this name, which both include. A thread waits with the
 * platform of the engine. The program has test_platform(), test_cpu() and current.
 */
#ifndef TEST_LINUX_SCHED_MM_H
#define TEST_LINUX_SCHED_MM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/lock.h"
#include "expect.h"

const struct nvj_platform *test_platform(void);
/* The processor of the thread, as it is now. */
unsigned test_cpu(void);

#define TEST_CPUS 4u

typedef uint32_t u32;
typedef uint64_t u64;

#ifndef __always_inline /* the C library has it, too */
#define __always_inline inline __attribute__((always_inline))
#endif
#define likely(condition) (condition)
#define unlikely(condition) (condition)
#define container_of(p, type, field) ((type *)((uintptr_t)(p) - (uintptr_t)offsetof(type, field)))
#ifdef NVJ_SCHEDULE
#define READ_ONCE(word) nvj_load_acquire(&(word)) /* the scheduler may switch there */
#else
#define READ_ONCE(word) nvj_load(&(word)) /* as in the kernel, without an order */
#endif

/* Nothing that the kernel would warn of may happen. */
static inline bool test_warn(bool condition)
{
	expect(!condition);
	return condition;
}

#define WARN_ON(condition) test_warn(condition)
#define WARN_ON_ONCE(condition) ((void)test_warn(condition))

/* Variables of each processor: an array. */
#define __percpu
#define raw_cpu_ptr(first) ((first) + test_cpu())
#define per_cpu_ptr(first, cpu) ((first) + (cpu))
#define for_each_possible_cpu(cpu) for ((cpu) = 0; (cpu) < (int)TEST_CPUS; (cpu)++)
#define raw_smp_processor_id() test_cpu()

static inline unsigned int memalloc_nofs_save(void)
{
	return 0;
}

static inline void memalloc_nofs_restore(unsigned int flags)
{
	(void)flags;
}

struct mutex {
	struct nvj_lock lock;
};

#define mutex_init(m) memset((m), 0, sizeof(struct mutex))
#define mutex_lock(m) nvj_lock(&(m)->lock, test_platform())
#define mutex_unlock(m) nvj_unlock(&(m)->lock, test_platform())

/* lockdep. Its arguments need not exist. */
struct lock_class_key {
	int none;
};

#define lockdep_init_map(map, name, key, subclass) ((void)(key))
#define rwsem_acquire(map, subclass, trylock, ip) ((void)0)
#define rwsem_release(map, ip) ((void)0)

/* As in the kernel, a wake-up after the check of the condition is not lost. */
typedef struct {
	uint32_t wakes;
} wait_queue_head_t;

#define init_waitqueue_head(queue) ((queue)->wakes = 0)
#define wake_up_all(queue) wake_up(queue)
#define wait_event(queue, condition)                                                               \
	for (;;) {                                                                                 \
		uint32_t wakes_ = nvj_load_sc(&(queue).wakes);                                     \
                                                                                                   \
		if (condition)                                                                     \
			break;                                                                     \
		test_platform()->wait(test_platform()->context, &(queue).wakes, wakes_, 0);        \
	}

static inline void wake_up(wait_queue_head_t *queue)
{
	nvj_add_sc(&queue->wakes, 1);
	test_platform()->wake(test_platform()->context, &queue->wakes);
}

#endif
