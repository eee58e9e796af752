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

static inline uint32_t over(const uint32_t table[8][16], uint32_t crc)
{
	uint32_t result = 0;

	for (unsigned half = 0; half < 8; half++, crc >>= 4)
		result ^= table[half][crc & 15];
	return result;
}

/*
 * Three pieces of the same size at once: the instruction takes a new one each
 * cycle, but gives its result after three.
 */
static inline uint32_t three(uint32_t crc, const uint8_t *at, size_t piece,
			     const uint32_t table[8][16])
{
	uint64_t a = crc, b = 0, c = 0;

	for (size_t i = 0; i < piece; i += 8) {
		a = step64(a, at + i);
		b = step64(b, at + piece + i);
		c = step64(c, at + 2 * piece + i);
	}
	return over(table, over(table, (uint32_t)a) ^ (uint32_t)b) ^ (uint32_t)c;
}

static uint32_t crc32c_instruction(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *at = data;
	uint64_t wide;

	for (; bytes >= 3 * 512; bytes -= 3 * 512, at += 3 * 512)
		crc = three(crc, at, 512, nvj_crc32c_over_512);
	for (; bytes >= 3 * 128; bytes -= 3 * 128, at += 3 * 128)
		crc = three(crc, at, 128, nvj_crc32c_over_128);
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
