/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary regions out of arbitrary bytes: a sound region (test/lib/sample.h)
 * and a list of edits of it, some of which make the CRCs right again; so the
 * fuzzer gets behind them. Each edit is 12 bytes of the input; the first byte of
 * the input chooses the region.
 */
#ifndef FUZZ_EDITS_H
#define FUZZ_EDITS_H

#include "lib/world.h"

#define EDIT_BYTES 12u
#define FUZZ_BLOCKS 12u

/* Memory of exactly the region's size: whoever goes beyond it is caught. */
struct edited {
	uint8_t *region, *disk;
	size_t region_bytes;
	/*
	 * A commit record, record or tail was changed and its CRC made right:
	 * then what one recovery believes may contradict what the next one finds.
	 */
	bool forged;
	struct world world;
};

/* Begins from the input; false: it is too short. */
bool edits_begin(struct edited *e, const uint8_t *input, size_t bytes);
/* Ends; aborts if the world saw something that must not be. */
void edits_end(struct edited *e);

#endif
