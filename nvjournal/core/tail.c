/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The tail: the newest transaction whose blocks are all at home. It is a word
 * of 8 bytes in two copies. One store moves a copy.
 */
#include "format.h"

#define TID_BITS 48

uint64_t nvj_tail_encode(uint32_t seed, uint64_t tid)
{
	/* Little-endian: the first 6 bytes are the bits 0..47. */
	uint64_t crc = nvj_crc32c(seed, &tid, TID_BITS / 8);

	return (tid & NVJ_MAX_TID) | crc << TID_BITS;
}

bool nvj_tail_decode(uint32_t seed, uint64_t word, uint64_t *tid)
{
	*tid = word & NVJ_MAX_TID;
	return nvj_tail_encode(seed, *tid) == word;
}

static bool read_word(const struct nvj_geometry *g, unsigned copy, uint64_t *word)
{
	if (g->read)
		return nvj_copy_out(g->read, word, nvj_tail_at(g, copy), sizeof(*word));
	*word = __atomic_load_n(nvj_tail_at(g, copy), __ATOMIC_RELAXED);
	return true;
}

bool nvj_tail_is(const struct nvj_geometry *g, unsigned copy, uint64_t word)
{
	uint64_t there;

	return read_word(g, copy, &there) && there == word;
}

bool nvj_tail_read(const struct nvj_geometry *g, uint64_t *tid, unsigned *damaged)
{
	uint64_t each[2];

	*damaged = 0;
	for (unsigned copy = 0; copy < 2; copy++) {
		uint64_t word;

		if (!read_word(g, copy, &word) || !nvj_tail_decode(g->seed, word, &each[copy]))
			*damaged |= 1u << copy;
	}
	switch (*damaged) {
	case 0:
		*tid = each[0] > each[1] ? each[0] : each[1];
		return true;
	case 1:
		*tid = each[1];
		return true;
	case 2:
		*tid = each[0];
		return true;
	}
	return false;
}

void nvj_tail_write(const struct nvj_geometry *g, const struct nvj_persistence *p, uint64_t tid)
{
	uint64_t word = nvj_tail_encode(g->seed, tid);

	/*
	 * The order does not matter. A crash between the stores leaves one copy
	 * at the old tail. The slot and lines of the old tail still exist,
	 * because they are not reused before the fence below. The newer copy
	 * counts, and the older one is correct, too.
	 */
	p->store64(p, nvj_tail_at(g, 0), word);
	p->store64(p, nvj_tail_at(g, 1), word);
	/*
	 * Before any slot or line between the old and the new tail is reused.
	 */
	p->fence(p);
}
