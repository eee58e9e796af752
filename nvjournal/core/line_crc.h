/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The CRC of a record, faster than byte after byte: an instruction that takes
 * three cycles can be begun in each, so four lines are summed side by side, each
 * from 0, and put together. A CRC is linear: that of A and then B is that of A,
 * shifted over as many bytes as B has, XOR that of B from 0. The shift over 1 to
 * 4 lines is looked up.
 */
#ifndef NVJ_LINE_CRC_H
#define NVJ_LINE_CRC_H

#include "../include/nvjournal.h"

#define NVJ_LINES_AT_ONCE 4u

struct nvj_line_crc {
	/* [n - 1][k][v]: the value v << 4 * k, shifted over n lines. */
	uint32_t shift[NVJ_LINES_AT_ONCE][8][16];
	bool instruction; /* the processor has one for it */
};

void nvj_line_crc_make(struct nvj_line_crc *s);

/*
 * What nvj_record_crc_image gives for a header whose crc is 0 now: of the header
 * and those lines of the image that header->mask & ~header->zeros names.
 */
uint32_t nvj_line_crc_record(const struct nvj_line_crc *s, uint32_t seed,
			     const struct nvj_disk_record *header, const void *image);

#endif
