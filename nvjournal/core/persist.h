/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The ways by which stores become persistent, each a struct nvj_persistence, and
 * which of them this processor has. A table is asked for by name in persist.c.
 */
#ifndef NVJ_PERSIST_H
#define NVJ_PERSIST_H

#include "../include/nvjournal.h"

/* A way, and whether this processor has it. */
struct nvj_persist_way {
	struct nvj_persistence table;
	bool (*available)(void);
};

/* The processor's ways, the best first; their number may be 0. */
extern const struct nvj_persist_way nvj_persist_ways[];
extern const unsigned nvj_persist_way_count;

#endif
