/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading memory that may fail: the kernel says so by SIGBUS, to the thread that
 * reads. While a region is open a handler of ours is there. It ends a copy of this
 * file, in this thread, with an error; any other SIGBUS it gives to the handler
 * that was there before, or to the kernel.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "region.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct sigaction before;

/* Where a copy of this thread ends if memory fails; NULL: there is none. Known without a call. */
static _Thread_local sigjmp_buf *volatile failed __attribute__((tls_model("initial-exec")));

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	/* An error that this thread met: not one that is only told of, or sent by a process. */
	bool met = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
	struct sigaction none = {.sa_handler = SIG_DFL};

	if (failed && met)
		siglongjmp(*failed, 1);
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler == SIG_DFL || (met && before.sa_handler == SIG_IGN)) {
		/*
		 * The load fails again, or the signal is sent again: this time it ends the
		 * program. A load that fails cannot be ignored: it would fail for ever.
		 */
		(void)sigaction(SIGBUS, &none, NULL);
		if (!met)
			(void)raise(SIGBUS);
	} else if (before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	}
}

void nvju_catch_bus_errors(struct nvju_region *region)
{
	/* A jump out of the handler must leave the signal as it was: not blocked. */
	struct sigaction ours = {
		.sa_sigaction = on_bus_error,
		.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER,
	};

	pthread_mutex_lock(&lock);
	if (users++ == 0)
		(void)sigaction(SIGBUS, &ours, &before);
	pthread_mutex_unlock(&lock);
	region->catches = true;
	region->region.read = nvju_read_memory;
}

void nvju_release_bus_errors(struct nvju_region *region)
{
	struct sigaction now;

	if (!region->catches)
		return;
	pthread_mutex_lock(&lock);
	/* The program may have set its own meanwhile, which stays. */
	if (--users == 0 && sigaction(SIGBUS, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO &&
	    now.sa_sigaction == on_bus_error)
		(void)sigaction(SIGBUS, &before, NULL);
	pthread_mutex_unlock(&lock);
}

int nvju_read_memory(void *to, const void *from, size_t bytes)
{
	sigjmp_buf here;

	if (sigsetjmp(here, 0)) {
		failed = NULL;
		return NVJ_EIO;
	}
	failed = &here;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memcpy(to, from, bytes);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	failed = NULL;
	return 0;
}
