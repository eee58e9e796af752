/* SPDX-License-Identifier: Apache-2.0 */
/* The text for a negative error: see nvju_error(). */
#ifndef NVJU_ERROR_H
#define NVJU_ERROR_H

#include <stdint.h>

/*
 * Stores the text for nvju_error(), and returns error. errno does not change.
 */
int nvju_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define NVJU_OFFSET_OPTION_BYTES 32

/* Returns text: the option for a command line of nvj with its space before it; "" for 0. */
const char *nvju_offset_option(uint64_t offset, char text[NVJU_OFFSET_OPTION_BYTES]);

#endif
