/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The ways to make stores persistent, each a struct nvj_persistence, and the
 * ways that this processor supports. persist.c finds one by its name.
 */
#ifndef NVJ_PERSIST_H
#define NVJ_PERSIST_H

#include "../include/nvjournal.h"

/* A way, and a check whether this processor supports it. */
struct nvj_persist_way {
	struct nvj_persistence table;
	bool (*available)(void);
};

/* The ways of this architecture, the best first. There may be none. */
extern const struct nvj_persist_way nvj_persist_ways[];
extern const unsigned nvj_persist_way_count;

#endif
