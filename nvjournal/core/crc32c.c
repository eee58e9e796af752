/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * CRC-32C by the crc32 instruction of SSE4.2 (which uses general registers only,
 * so kernels may), by that of ARMv8 where the compiler is told of it, or by tables.
 */
#include "crc32c.h"
#include "crc32c_table.h"

#if defined(__x86_64__)
#include "cpu_x86.h"
#endif

static inline uint64_t load64(const uint8_t *from)
{
	uint64_t value;

	__builtin_memcpy(&value, from, 8);
	return value;
}

uint32_t nvj_crc32c_table(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (; bytes >= 8; bytes -= 8, at += 8) {
		uint64_t word = load64(at) ^ crc;

		crc = 0;
		for (unsigned half = 0; half < 16; half++, word >>= 4)
			crc ^= nvj_crc32c_halves[15 - half][word & 15];
	}
	for (; bytes; bytes--, at++) {
		crc ^= *at;
		crc = crc >> 8 ^ nvj_crc32c_halves[1][crc & 15] ^
		      nvj_crc32c_halves[0][crc >> 4 & 15];
	}
	return crc;
}

#if defined(__x86_64__)

static inline uint64_t step64(uint64_t crc, const uint8_t *at)
{
	__asm__("crc32q %1, %0" : "+r"(crc) : "rm"(load64(at)));
	return crc;
}

#define LINE_BYTES 64u

/* Over lines of zeros, 1 to 4. */
static inline uint32_t over(unsigned lines, uint32_t crc)
{
	const uint32_t(*t)[16] = nvj_crc32c_over[lines - 1];

	return (t[0][crc & 15] ^ t[1][crc >> 4 & 15] ^ t[2][crc >> 8 & 15] ^ t[3][crc >> 12 & 15]) ^
	       (t[4][crc >> 16 & 15] ^ t[5][crc >> 20 & 15] ^ t[6][crc >> 24 & 15] ^
		t[7][crc >> 28]);
}

/* Goes on over one line. */
static inline uint32_t line(uint64_t crc, const uint8_t *at)
{
	for (unsigned i = 0; i < LINE_BYTES; i += 8)
		crc = step64(crc, at + i);
	return (uint32_t)crc;
}

/*
 * Of four lines, from 0: the instruction takes a new one each cycle, but gives its
 * result after three.
 */
static inline uint32_t four_lines(const uint8_t *at)
{
	uint64_t a = 0, b = 0, c = 0, d = 0;

	for (unsigned i = 0; i < LINE_BYTES; i += 8) {
		a = step64(a, at + i);
		b = step64(b, at + LINE_BYTES + i);
		c = step64(c, at + 2 * LINE_BYTES + i);
		d = step64(d, at + 3 * LINE_BYTES + i);
	}
	return over(3, (uint32_t)a) ^ over(2, (uint32_t)b) ^ over(1, (uint32_t)c) ^ (uint32_t)d;
}

/*
 * A CRC is linear: that of A and then B is that of A, gone over as many zeros as B
 * has bytes, XOR that of B from 0. So only the steps over zeros wait for what was
 * before; lines are summed side by side.
 */
static uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *at = data;
	const uint8_t *fours = at + bytes / LINE_BYTES % 4 * LINE_BYTES;
	const uint8_t *rest = at + bytes / LINE_BYTES * LINE_BYTES;
	uint64_t wide;

	if (at < fours)
		for (crc = line(crc, at), at += LINE_BYTES; at < fours; at += LINE_BYTES)
			crc = over(1, crc) ^ line(0, at);
	for (; at < rest; at += 4 * LINE_BYTES) {
		uint32_t four = four_lines(at);

		/* Apart: the compiler must not mix what waits with what need not. */
		__asm__("" : "+r"(four));
		crc = over(4, crc) ^ four;
	}
	bytes %= LINE_BYTES;
	wide = crc;
	for (; bytes >= 8; bytes -= 8, at += 8)
		wide = step64(wide, at);
	crc = (uint32_t)wide;
	for (; bytes; bytes--, at++)
		__asm__("crc32b %1, %0" : "+r"(crc) : "rm"(*at));
	return crc;
}

/* 0: not asked yet. Threads may ask at the same time, and get the same answer. */
enum { CRC_UNKNOWN, CRC_TABLE, CRC_INSTRUCTION };
static uint8_t crc_by;

uint32_t nvj_crc32c(uint32_t crc, const void *data, size_t bytes)
{
	uint8_t by = __atomic_load_n(&crc_by, __ATOMIC_RELAXED);

	if (__builtin_expect(by == CRC_UNKNOWN, 0)) {
		by = nvj_cpu_has_crc32() ? CRC_INSTRUCTION : CRC_TABLE;
		__atomic_store_n(&crc_by, by, __ATOMIC_RELAXED);
	}
	return by == CRC_INSTRUCTION ? crc32c_instruction(crc, data, bytes)
				     : nvj_crc32c_table(crc, data, bytes);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

/* Compiled for AArch64, but never yet run there. */
uint32_t nvj_crc32c(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	for (; bytes >= 8; bytes -= 8, at += 8)
		__asm__("crc32cx %w0, %w0, %1" : "+r"(crc) : "r"(load64(at)));
	for (; bytes; bytes--, at++)
		__asm__("crc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)*at));
	return crc;
}

#else

uint32_t nvj_crc32c(uint32_t crc, const void *data, size_t bytes)
{
	return nvj_crc32c_table(crc, data, bytes);
}

#endif
