/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor of a thread, and additions that only threads on that processor
 * make.
 */
#ifndef NVJU_PROCESSOR_H
#define NVJU_PROCESSOR_H

#include <stdbool.h>
#include <stdint.h>

/* Its number; 0 if it is unknown. */
unsigned nvju_processor(void);

/*
 * Says whether nvju_add_here works: it needs glibc 2.35 and a kernel with rseq.
 */
bool nvju_can_add_here(void);

/*
 * Adds to a word that only threads on the processor add to, and only with this
 * function. It needs no locked instruction, although threads on the processor
 * are preempted. False: this thread is on another processor, or was preempted
 * during the addition; nothing was added.
 */
bool nvju_add_here(unsigned processor, uint64_t *word, uint64_t value);

#endif
