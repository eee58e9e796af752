/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), the one check of all
 * that lies in a region. It finds every damage of one to three bits in the
 * longest record, and every burst of up to 32.
 *
 * The value is the bare register, neither inverted before nor after: begin with
 * ~0u or a seed, and go on with the value returned for the next piece. The
 * CRC-32C of RFC 3720 is ~nvj_crc32c(~0u, ...).
 */
#ifndef NVJ_CRC32C_H
#define NVJ_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from crc over bytes bytes, by the processor's instruction if it has one. */
uint32_t nvj_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same by tables only: for processors without, and to test the one by the other. */
uint32_t nvj_crc32c_table(uint32_t crc, const void *data, size_t bytes);

#if defined(__x86_64__)
/* The same as kernels do it, by general registers; the processor must have the instruction. */
uint32_t nvj_crc32c_general(uint32_t crc, const void *data, size_t bytes);
#endif

#endif
