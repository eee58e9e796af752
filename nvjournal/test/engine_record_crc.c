/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CRC that the engine computes, four lines side by side, is the one of the
 * format, whatever lines a record has.
 */
#include "engine.h"

#include "../core/format.h"
#include "../core/line_crc.h"

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

int main(void)
{
	static struct nvj_line_crc sums;
	static _Alignas(64) uint8_t image[NVJ_BLOCK_BYTES];
	struct nvj_disk_record header;

	nvj_line_crc_make(&sums);
	for (unsigned round = 0; round < 20000; round++) {
		uint64_t mask = next(), zeros = next() & next() & mask;
		uint32_t seed = (uint32_t)next();

		if (round % 3 == 0)
			mask = UINT64_MAX >> round % 64;
		if (round % 5 == 0)
			zeros = 0;
		zeros &= mask;
		for (unsigned i = 0; i < sizeof(image) / 8; i++)
			memcpy(image + 8 * i, &(uint64_t){next()}, 8);
		nvj_record_begin(&header, NVJ_UPDATE, next(), next(), next(), mask, zeros);
		expect(nvj_line_crc_record(&sums, seed, &header, image) ==
		       nvj_record_crc_image(seed, &header, image));
	}
	return 0;
}
