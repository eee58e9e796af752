/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region in a plain file, as user/region_file.c keeps it: that very code runs
 * here, but for msync, which is recorded as two events of the trace. What was
 * written to its pages before the first is there after the second.
 */
#ifndef TEST_PLAIN_FILE_H
#define TEST_PLAIN_FILE_H

#include "world.h"

/* The world's region becomes such a file. */
void plain_file_begin(struct world *w);

#endif
