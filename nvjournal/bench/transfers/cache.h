/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of the caches of up to 64 processors, by the MESI protocol, with lines
 * of 64 bytes. Caches are infinite, so a line leaves a cache only because another
 * processor writes it. It counts transfers: accesses that need a message from
 * another processor's cache. The first access to a line is not a transfer.
 */
#ifndef TRANSFERS_CACHE_H
#define TRANSFERS_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#define CACHE_PROCESSORS 64u
#define CACHE_LINE_BYTES 64u

enum access { LOAD, STORE, UPDATE }; /* UPDATE: an atomic instruction that also stores */

enum outcome {
	HIT,
	FILL,    /* from memory */
	FETCH,   /* the line comes from another processor, which wrote it */
	UPGRADE, /* the line is here, but other processors have copies that must go */
};

struct line {
	uint64_t number; /* address / 64; 0: the entry is free */
	uint64_t copies; /* bit n: processor n has a copy */
	uint64_t fetches, upgrades;
	uint64_t ready_ps; /* when its last transfer ends */
	int8_t owner;      /* may write without a message; -1: none */
	int8_t writer;     /* of the last store; -1: none */
	int8_t to;         /* where its last transfer went */
};

/* Forgets all lines. */
void cache_clear(void);
/* Sets the counters of all lines to 0. */
void cache_count_again(void);
struct line *cache_line(uintptr_t address);
enum outcome cache_access(struct line *line, unsigned processor, enum access access);
/* A store that bypasses the caches: no cache has the line after it. */
void cache_bypass(struct line *line);
/* Calls visit for each line with a counter that is not 0. */
void cache_visit(void (*visit)(const struct line *line, void *argument), void *argument);

#endif
