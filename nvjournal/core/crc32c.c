/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * CRC-32C. On x86-64 it uses the crc32 instruction of SSE4.2, which needs
 * general registers only and so works in kernels, and carry-less products in
 * vector registers where these may be used. On ARMv8 it uses the CRC
 * instruction if the compiler is told that there is one. Otherwise it uses
 * tables.
 */
#include "compiler.h"
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

#define LINE_BYTES 64u

static inline uint64_t step64(uint64_t crc, uint64_t word)
{
	__asm__("crc32q %1, %0" : "+r"(crc) : "rm"(word));
	return crc;
}

/* Continues a CRC over 1 to 4 lines of zeros. */
typedef uint32_t over_zeros(unsigned lines, uint32_t crc);

static inline uint32_t over_by_table(unsigned lines, uint32_t crc)
{
	const uint32_t(*t)[16] = nvj_crc32c_over[lines - 1];

	return (t[0][crc & 15] ^ t[1][crc >> 4 & 15] ^ t[2][crc >> 8 & 15] ^ t[3][crc >> 12 & 15]) ^
	       (t[4][crc >> 16 & 15] ^ t[5][crc >> 20 & 15] ^ t[6][crc >> 24 & 15] ^
		t[7][crc >> 28]);
}

/* Continues a CRC over one line. */
static inline uint32_t line(uint64_t crc, const uint8_t *at)
{
	NVJ_UNROLLED
	for (unsigned i = 0; i < LINE_BYTES; i += 8)
		crc = step64(crc, load64(at + i));
	return (uint32_t)crc;
}

/*
 * CRCs of four lines, each from 0. The instruction can start in each cycle, but
 * its result takes three cycles.
 */
static NVJ_INLINED uint32_t four_lines(const uint8_t *at, over_zeros *over)
{
	uint64_t a = 0, b = 0, c = 0, d = 0;

	NVJ_UNROLLED
	for (unsigned i = 0; i < LINE_BYTES; i += 8) {
		a = step64(a, load64(at + i));
		b = step64(b, load64(at + LINE_BYTES + i));
		c = step64(c, load64(at + 2 * LINE_BYTES + i));
		d = step64(d, load64(at + 3 * LINE_BYTES + i));
	}
	return over(3, (uint32_t)a) ^ over(2, (uint32_t)b) ^ over(1, (uint32_t)c) ^ (uint32_t)d;
}

/*
 * A CRC is linear: the CRC of A followed by B is the XOR of two values. The
 * first is the CRC of A, continued over as many zeros as B has bytes. The
 * second is the CRC of B from 0. So the lines are summed in parallel, and only
 * the steps over zeros depend on the previous result.
 */
static NVJ_INLINED uint32_t whole_lines(uint32_t crc, const uint8_t *at, size_t lines,
					over_zeros *over)
{
	const uint8_t *fours = at + lines % 4 * LINE_BYTES;
	const uint8_t *end = at + lines * LINE_BYTES;

	if (at < fours)
		for (crc = line(crc, at), at += LINE_BYTES; at < fours; at += LINE_BYTES)
			crc = over(1, crc) ^ line(0, at);
	for (; at < end; at += 4 * LINE_BYTES) {
		uint32_t four = four_lines(at, over);

		/*
		 * A barrier for the compiler: it must not mix the dependent
		 * steps with the independent ones.
		 */
		__asm__("" : "+r"(four));
		crc = over(4, crc) ^ four;
	}
	return crc;
}

static NVJ_INLINED uint32_t by_lines(uint32_t crc, const void *data, size_t bytes, over_zeros *over)
{
	const uint8_t *at = (const uint8_t *)data + bytes / LINE_BYTES * LINE_BYTES;
	uint64_t wide = whole_lines(crc, data, bytes / LINE_BYTES, over);

	bytes %= LINE_BYTES;
	for (; bytes >= 8; bytes -= 8, at += 8)
		wide = step64(wide, load64(at));
	crc = (uint32_t)wide;
	for (; bytes; bytes--, at++)
		__asm__("crc32b %1, %0" : "+r"(crc) : "rm"(*at));
	return crc;
}

uint32_t nvj_crc32c_general(uint32_t crc, const void *data, size_t bytes)
{
	return by_lines(crc, data, bytes, over_by_table);
}

/* Kernels may not use vector registers. */
#if defined(__SSE2__)
#define MULTIPLIES true

/*
 * x^(8n - 33) mod P, reflected, where n is the number of bytes of 1 to 4 lines.
 */
static const uint32_t powers[4] = {0x9e4addf8, 0x0d3b6092, 0xab7aff2a, 0xb9e02b86};

/*
 * Continues a CRC over n bytes of zeros, which is a multiplication by x^8n. The
 * carry-less product of two reflected numbers has one power of x too many. The
 * crc32 instruction, which reduces the product, adds 32. (Gopal and others,
 * Fast CRC Computation for Generic Polynomials Using PCLMULQDQ, Intel, 2009.)
 */
static inline uint32_t over_by_product(unsigned lines, uint32_t crc)
{
	typedef uint64_t two __attribute__((vector_size(16)));
	two product = {crc}, power = {powers[lines - 1]};

	__asm__("pclmulqdq $0, %1, %0" : "+x"(product) : "x"(power));
	return (uint32_t)step64(0, product[0]);
}

static uint32_t crc32c_product(uint32_t crc, const void *data, size_t bytes)
{
	return by_lines(crc, data, bytes, over_by_product);
}
#else
#define MULTIPLIES false
#define crc32c_product nvj_crc32c_general
#define over_by_product over_by_table
#endif

/*
 * CRC_UNKNOWN: not determined yet. Threads may determine it at the same time,
 * with the same result.
 */
enum { CRC_UNKNOWN, CRC_TABLE, CRC_GENERAL, CRC_PRODUCT };
static uint8_t crc_by;

static uint8_t best_way(void)
{
	if (!nvj_cpu_has_crc32())
		return CRC_TABLE;
	return MULTIPLIES && nvj_cpu_has_pclmul() ? CRC_PRODUCT : CRC_GENERAL;
}

uint32_t nvj_crc32c(uint32_t crc, const void *data, size_t bytes)
{
	uint8_t by = __atomic_load_n(&crc_by, __ATOMIC_RELAXED);

	if (NVJ_UNLIKELY(by == CRC_UNKNOWN)) {
		by = best_way();
		__atomic_store_n(&crc_by, by, __ATOMIC_RELAXED);
	}
	if (by == CRC_PRODUCT)
		return crc32c_product(crc, data, bytes);
	return by == CRC_GENERAL ? nvj_crc32c_general(crc, data, bytes)
				 : nvj_crc32c_table(crc, data, bytes);
}

uint32_t nvj_crc32c_lines(uint32_t crc, const void *data, unsigned lines)
{
	const uint8_t best = MULTIPLIES ? CRC_PRODUCT : CRC_GENERAL;

	if (NVJ_UNLIKELY(__atomic_load_n(&crc_by, __ATOMIC_RELAXED) != best))
		return nvj_crc32c(crc, data, (size_t)lines * LINE_BYTES);
	return whole_lines(crc, data, lines, over_by_product);
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

/* This code compiles for AArch64. It has never run there. */
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

#if !defined(__x86_64__)
uint32_t nvj_crc32c_lines(uint32_t crc, const void *data, unsigned lines)
{
	return nvj_crc32c(crc, data, (size_t)lines * 64);
}
#endif
