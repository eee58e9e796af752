/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of open file descriptions, which a forked child shares. */
#ifndef NVJU_UNLOCK_H
#define NVJU_UNLOCK_H

#include <sys/types.h>

/*
 * Unlocks the whole file. Closing alone does not: a child that was forked meanwhile has the
 * descriptor, too. In a child of opener this does nothing, because opener still needs the lock.
 */
void nvju_unlock(int fd, pid_t opener);

#endif
