/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * CRC-32C (Castagnoli, reflected polynomial 0x82f63b78). It protects all data
 * in a region. It detects all errors of one to three bits in the longest
 * record, and all bursts of up to 32 bits.
 *
 * The value is the plain register, which is not inverted before or after. Start
 * with ~0u or a seed, and continue with the value that was returned for the
 * previous piece. The CRC-32C of RFC 3720 is ~nvj_crc32c(~0u, ...).
 */
#ifndef NVJ_CRC32C_H
#define NVJ_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/*
 * Continues from crc over that many bytes, with the processor's instruction if
 * it has one.
 */
uint32_t nvj_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same over that many lines of 64 bytes, at least one. */
uint32_t nvj_crc32c_lines(uint32_t crc, const void *data, unsigned lines);

/*
 * The same with tables only: for processors without the instruction, and for
 * tests.
 */
uint32_t nvj_crc32c_table(uint32_t crc, const void *data, size_t bytes);

#if defined(__x86_64__)
/*
 * The same as kernels compute it, with general registers. The processor must
 * have the instruction.
 */
uint32_t nvj_crc32c_general(uint32_t crc, const void *data, size_t bytes);
#endif

#endif
