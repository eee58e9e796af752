/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the transfer counter have in common. */
#ifndef TRANSFERS_TRANSFERS_H
#define TRANSFERS_TRANSFERS_H

#include <stddef.h>
#include <stdint.h>

#include "nvjournal.h"

const struct nvj_persistence *simulated_persistence(void);

/* --- Which part of an engine a line belongs to (parts.c) --- */

struct part {
	const char *name;
	uint64_t fetches, upgrades;
};

/* Memory that the journal has now. */
void parts_allocated(void *memory, size_t bytes);
void parts_released(void *memory, size_t bytes);
void parts_set_region(const struct nvj_region *region);
/* The lines with transfers, by part; ends with a NULL name. */
const struct part *parts_count(void);

#endif
