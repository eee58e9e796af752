/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How much is in progress. Most events happen while nothing is, and end after
 * one comparison. A count that is too high, because a task died, costs time
 * only.
 */
#ifndef DAYBOOK_BLAME_PROGRESS_H
#define DAYBOOK_BLAME_PROGRESS_H

#include <bpf/bpf_helpers.h>

int active = 0;     /* syncs and commits */
int committing = 0; /* commits */
int locked = 0;     /* commits that wait for handles */
int ordering = 0;   /* commits that wait for data */
int starting = 0;   /* starts of handles during a commit or a checkpoint */
int checkpoints = 0;

static __always_inline void change(int *count, int by)
{
	__sync_fetch_and_add(count, by);
}

#endif
