/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence that goes with a negative error: see nvju_error(). */
#ifndef NVJU_ERROR_H
#define NVJU_ERROR_H

/* Keeps the sentence for nvju_error(), and returns error. errno stays as it was. */
int nvju_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
