/* SPDX-License-Identifier: Apache-2.0 */
/* The text for a negative error: see nvju_error(). */
#ifndef NVJU_ERROR_H
#define NVJU_ERROR_H

/*
 * Stores the text for nvju_error(), and returns error. errno does not change.
 */
int nvju_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
