/* SPDX-License-Identifier: Apache-2.0 */
/* The text for a negative error: see nvju_error(). */
#ifndef NVJU_ERROR_H
#define NVJU_ERROR_H

#include <limits.h>
#include <stdint.h>

/*
 * Stores the text for nvju_error(), and returns error. errno does not change.
 */
int nvju_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Of a path with some quotation marks, each of which takes four bytes in quotes. */
#define NVJU_WORD_BYTES (PATH_MAX + 64)

/*
 * Returns text: word as a shell reads it, in single quotes if it needs them. It is cut off
 * where it does not fit.
 */
const char *nvju_word(const char *word, char text[NVJU_WORD_BYTES]);

#define NVJU_JOURNAL_BYTES (NVJU_WORD_BYTES + 32)

/* Returns text: the journal at an offset of file as a command line of nvj names it, "FILE" or
 * "FILE --offset BYTES". */
const char *nvju_journal(const char *file, uint64_t offset, char text[NVJU_JOURNAL_BYTES]);

#endif
