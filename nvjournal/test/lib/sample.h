/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sound regions to damage: made by the journal itself, each the same whenever it
 * is made. With them the disk as it was at the crash, and as recovery leaves it.
 */
#ifndef TEST_SAMPLE_H
#define TEST_SAMPLE_H

#include "world.h"

#define SAMPLE_KINDS 5u
#define SAMPLE_BLOCKS 12u

struct sample {
	size_t region_bytes;
	uint8_t *region, *disk;
	uint8_t *recovered; /* the disk, after recovery */
	struct nvj_report report;
};

/* Kind 0 .. SAMPLE_KINDS - 1; aborts if the journal does not work at all. */
void sample_make(struct sample *s, unsigned kind);
void sample_free(struct sample *s);

#endif
