/* SPDX-License-Identifier: Apache-2.0 */
/* The processor that a thread is on, and additions that only threads there make. */
#ifndef NVJU_PROCESSOR_H
#define NVJU_PROCESSOR_H

#include <stdbool.h>
#include <stdint.h>

/* Its number; 0 if that is not known. */
unsigned nvju_processor(void);

/* Whether nvju_add_here is there: not before glibc 2.35, nor where the kernel lacks rseq. */
bool nvju_can_add_here(void);

/*
 * Adds to a word that only threads on the processor add to, each by this: without
 * a locked instruction, though threads take turns on it. False: this thread is on
 * another, or lost its turn just then; nothing was added.
 */
bool nvju_add_here(unsigned processor, uint64_t *word, uint64_t value);

#endif
