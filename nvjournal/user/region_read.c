/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads memory that may fail. The kernel then sends SIGBUS to the reading
 * thread. While a region is open, there is a handler of this library. It ends a
 * copy of this file, in this thread, with an error. It passes any other SIGBUS
 * to the previous handler, or to the kernel.
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

/*
 * Where a copy of this thread continues if the memory fails; NULL: no copy is
 * running. It is accessible without a function call.
 */
static _Thread_local sigjmp_buf *volatile failed __attribute__((tls_model("initial-exec")));

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	/*
	 * The thread itself met this error. It was not only reported to it, and
	 * no process sent it.
	 */
	bool met = info->si_code > 0 && info->si_code != BUS_MCEERR_AO;
	struct sigaction none = {.sa_handler = SIG_DFL};

	if (failed && met)
		siglongjmp(*failed, 1);
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler == SIG_DFL || (met && before.sa_handler == SIG_IGN)) {
		/*
		 * The load fails again, or the signal is sent again. This time
		 * it ends the program. A failing load cannot be ignored,
		 * because it would fail for ever.
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
	/*
	 * A jump out of the handler must leave the signal unblocked, as it was.
	 */
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
	/*
	 * If the program has installed its own handler meanwhile, that handler
	 * stays.
	 */
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
