/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Compares and copies lines of the caller's memory.
 *
 * That memory can have any content and any alignment, and can change during the
 * copy. Each piece of it is read once (volatile), and stored exactly as it was
 * compared. A piece has two words where the compiler may use vector registers. In
 * a kernel it may not.
 */
#ifndef NVJ_LINES_H
#define NVJ_LINES_H

#include "../include/nvjournal.h"
#include "compiler.h"

#if defined(__SSE2__) || defined(__ARM_NEON)
typedef uint64_t nvj_piece __attribute__((vector_size(16)));
typedef uint64_t nvj_piece_anywhere __attribute__((vector_size(16), aligned(1), may_alias));
#define NVJ_PIECE_ANY(p) (((p)[0] | (p)[1]) != 0)
#else
typedef uint64_t nvj_piece;
typedef uint64_t nvj_piece_anywhere __attribute__((aligned(1), may_alias));
#define NVJ_PIECE_ANY(p) ((p) != 0)
#endif
#define NVJ_PIECE_OF(at) (*(const volatile nvj_piece_anywhere *)(const volatile void *)(at))

static inline uint64_t nvj_lines_that_differ(const uint8_t *image, const uint8_t *caller)
{
	uint64_t mask = 0;

	for (unsigned line = 0; line < NVJ_BLOCK_LINES; line++) {
		nvj_piece differ = NVJ_PIECE_OF(image) ^ NVJ_PIECE_OF(caller);

		NVJ_UNROLLED
		for (unsigned i = sizeof(nvj_piece); i < NVJ_LINE_BYTES; i += sizeof(nvj_piece))
			differ |= NVJ_PIECE_OF(image + i) ^ NVJ_PIECE_OF(caller + i);
		mask |= (uint64_t)NVJ_PIECE_ANY(differ) << line;
		image += NVJ_LINE_BYTES;
		caller += NVJ_LINE_BYTES;
	}
	return mask;
}

static inline bool nvj_line_is_zero(const uint8_t *at)
{
	nvj_piece all = NVJ_PIECE_OF(at);

	NVJ_UNROLLED
	for (unsigned i = sizeof(nvj_piece); i < NVJ_LINE_BYTES; i += sizeof(nvj_piece))
		all |= NVJ_PIECE_OF(at + i);
	return !NVJ_PIECE_ANY(all);
}

static inline uint64_t nvj_zero_lines(const uint8_t *caller, uint64_t mask)
{
	uint64_t zeros = 0;

	for (uint64_t left = mask; left; left &= left - 1) {
		unsigned line = (unsigned)__builtin_ctzll(left);

		if (nvj_line_is_zero(caller + line * NVJ_LINE_BYTES))
			zeros |= UINT64_C(1) << line;
	}
	return zeros;
}

/*
 * Copies the lines of mask from the caller's memory to the image. Copies those
 * that are not zero also to a record, unless that is NULL. Returns the mask of
 * the lines that are zero.
 */
static inline uint64_t nvj_copy_lines(uint8_t *image, uint8_t *record, const uint8_t *caller,
				      uint64_t mask)
{
	uint64_t zeros = 0;

	for (uint64_t left = mask; left; left &= left - 1) {
		unsigned line = (unsigned)__builtin_ctzll(left);
		const uint8_t *from = caller + line * NVJ_LINE_BYTES;
		uint8_t *to = image + line * NVJ_LINE_BYTES;
		nvj_piece all = {0};

		NVJ_UNROLLED
		for (unsigned i = 0; i < NVJ_LINE_BYTES; i += sizeof(nvj_piece)) {
			nvj_piece p = NVJ_PIECE_OF(from + i);

			all |= p;
			*(nvj_piece_anywhere *)(void *)(to + i) = p;
			if (record)
				*(nvj_piece_anywhere *)(void *)(record + i) = p;
		}
		if (!NVJ_PIECE_ANY(all))
			zeros |= UINT64_C(1) << line;
		else if (record)
			record += NVJ_LINE_BYTES;
	}
	return zeros;
}

#endif
