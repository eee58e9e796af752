/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C: the vectors of RFC 3720 (B.4), the table against a computation bit by
 * bit, the processor's instructions against the table, and pieces against the whole.
 */
#include "rest.h"
#include "../core/crc32c_table.h"
#if defined(__x86_64__)
#include "../core/cpu_x86.h"
#endif

static uint32_t bit_by_bit(uint32_t crc, const uint8_t *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

static void vectors(void)
{
	uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
	const uint8_t read10[48] = {0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,    0, 0, 0, 0,
				    0x14, 0,    0, 0, 0, 0, 4, 0, 0, 0, 0, 0x14, 0, 0, 0, 0x18,
				    0x28, 0,    0, 0, 0, 0, 0, 0, 2, 0, 0, 0,    0, 0, 0, 0};

	for (unsigned i = 0; i < 32; i++) {
		ones[i] = 0xff;
		up[i] = (uint8_t)i;
		down[i] = (uint8_t)(31 - i);
	}
	expect(~nvj_crc32c(~0u, "123456789", 9) == 0xe3069283u);
	expect(~nvj_crc32c(~0u, zeros, 32) == 0x8a9136aau);
	expect(~nvj_crc32c(~0u, ones, 32) == 0x62a8ab43u);
	expect(~nvj_crc32c(~0u, up, 32) == 0x46dd794eu);
	expect(~nvj_crc32c(~0u, down, 32) == 0x113fdb5cu);
	expect(~nvj_crc32c(~0u, read10, 48) == 0xd9963a56u);
	expect(nvj_crc32c(0x12345678u, zeros, 0) == 0x12345678u);
}

static void tables(void)
{
	for (unsigned zeros = 0; zeros < 16; zeros++)
		for (unsigned n = 0; n < 16; n++) {
			uint32_t crc = n;

			for (unsigned bit = 0; bit < 4 * (zeros + 1); bit++)
				crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
			expect(nvj_crc32c_halves[zeros][n] == crc);
		}
	for (unsigned lines = 1; lines <= 4; lines++)
		for (unsigned half = 0; half < 8; half++)
			for (unsigned n = 0; n < 16; n++) {
				static const uint8_t none[4 * 64];

				expect(nvj_crc32c_over[lines - 1][half][n] ==
				       bit_by_bit(n << 4 * half, none, lines * 64));
			}
}

static void all_ways_agree(void)
{
	uint8_t data[4160 + 8];
	uint32_t seed = 1;

	for (size_t i = 0; i < sizeof(data); i++) {
		seed = seed * 1664525 + 1013904223;
		data[i] = (uint8_t)(seed >> 24);
	}
	for (size_t bytes = 0; bytes <= 4160; bytes = bytes < 300 ? bytes + 1 : bytes + 193)
		for (size_t at = 0; at < 8; at++) {
			uint32_t slow = bit_by_bit(seed, data + at, bytes);
			size_t piece = bytes / 3;
			uint32_t pieces = nvj_crc32c(seed, data + at, piece);

			expect(nvj_crc32c(seed, data + at, bytes) == slow);
			expect(nvj_crc32c_table(seed, data + at, bytes) == slow);
			if (bytes >= 64 && bytes % 64 == 0)
				expect(nvj_crc32c_lines(seed, data + at, (unsigned)(bytes / 64)) ==
				       slow);
#if defined(__x86_64__)
			if (nvj_cpu_has_crc32())
				expect(nvj_crc32c_general(seed, data + at, bytes) == slow);
#endif
			expect(nvj_crc32c(pieces, data + at + piece, bytes - piece) == slow);
		}
}

int main(void)
{
	vectors();
	tables();
	all_ways_agree();
	return 0;
}
