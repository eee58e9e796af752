/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The CRC of a record, four lines side by side: see line_crc.h. */
#include "line_crc.h"
#include "format.h"

#if defined(__x86_64__)
#include "cpu_x86.h"
#endif

static inline uint32_t shift(const struct nvj_line_crc *s, unsigned lines, uint32_t crc)
{
	const uint32_t(*t)[16] = s->shift[lines - 1];

	return (t[0][crc & 15] ^ t[1][crc >> 4 & 15] ^ t[2][crc >> 8 & 15] ^ t[3][crc >> 12 & 15]) ^
	       (t[4][crc >> 16 & 15] ^ t[5][crc >> 20 & 15] ^ t[6][crc >> 24 & 15] ^
		t[7][crc >> 28]);
}

void nvj_line_crc_make(struct nvj_line_crc *s)
{
	static const uint8_t zeros[NVJ_LINES_AT_ONCE * NVJ_LINE_BYTES];

	for (unsigned n = 0; n < NVJ_LINES_AT_ONCE; n++)
		for (unsigned k = 0; k < 8; k++)
			for (uint32_t v = 0; v < 16; v++)
				s->shift[n][k][v] =
					nvj_crc32c(v << 4 * k, zeros, (n + 1) * NVJ_LINE_BYTES);
#if defined(__x86_64__)
	s->instruction = nvj_cpu_has_crc32();
#endif
}

#if defined(__x86_64__)

static inline uint64_t step(uint64_t crc, const uint8_t *at)
{
	uint64_t word;

	__builtin_memcpy(&word, at, sizeof(word));
	__asm__("crc32q %1, %0" : "+r"(crc) : "rm"(word));
	return crc;
}

static inline uint32_t line_crc(uint64_t crc, const uint8_t *line)
{
	for (unsigned i = 0; i < NVJ_LINE_BYTES; i += 8)
		crc = step(crc, line + i);
	return (uint32_t)crc;
}

/* Goes on with crc over the four lines. */
static inline uint32_t four_lines(const struct nvj_line_crc *s, uint32_t crc,
				  const uint8_t *const line[NVJ_LINES_AT_ONCE])
{
	uint64_t a = 0, b = 0, c = 0, d = 0;
	uint32_t four;

	for (unsigned i = 0; i < NVJ_LINE_BYTES; i += 8) {
		a = step(a, line[0] + i);
		b = step(b, line[1] + i);
		c = step(c, line[2] + i);
		d = step(d, line[3] + i);
	}
	four = shift(s, 3, (uint32_t)a) ^ shift(s, 2, (uint32_t)b) ^ shift(s, 1, (uint32_t)c) ^
	       (uint32_t)d;
	/* Apart, so that the next four need not wait for these: only crc goes from four to four. */
	__asm__("" : "+r"(four));
	return shift(s, 4, crc) ^ four;
}

uint32_t nvj_line_crc_record(const struct nvj_line_crc *s, uint32_t seed,
			     const struct nvj_disk_record *header, const void *image)
{
	const uint8_t *line[NVJ_LINES_AT_ONCE];
	unsigned lines = 0;
	uint32_t crc;

	if (!s->instruction)
		return nvj_record_crc_image(seed, header, image);
	crc = line_crc(seed, (const uint8_t *)header);
	for (uint64_t left = header->mask & ~header->zeros; left; left &= left - 1) {
		line[lines++] =
			(const uint8_t *)image + (unsigned)__builtin_ctzll(left) * NVJ_LINE_BYTES;
		if (lines == NVJ_LINES_AT_ONCE) {
			crc = four_lines(s, crc, line);
			lines = 0;
		}
	}
	for (unsigned i = 0; i < lines; i++)
		crc = shift(s, 1, crc) ^ line_crc(0, line[i]);
	return crc;
}

#else

uint32_t nvj_line_crc_record(const struct nvj_line_crc *s, uint32_t seed,
			     const struct nvj_disk_record *header, const void *image)
{
	(void)s;
	return nvj_record_crc_image(seed, header, image);
}

#endif
