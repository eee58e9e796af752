/* SPDX-License-Identifier: Apache-2.0 */
/* A test ends at the first thing that is not as it must be. */
#ifndef TEST_EXPECT_H
#define TEST_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
