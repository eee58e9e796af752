/* SPDX-License-Identifier: Apache-2.0 */
/* For user_*.c: a test ends at the first thing that is not as it must be. */
#ifndef USER_EXPECT_H
#define USER_EXPECT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not so: %s (nvju_error: %s)\n", __FILE__,          \
				__LINE__, #condition, nvju_error());                               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* A new, empty file; the test removes it. */
static inline char *new_file(char path[64])
{
	const char *directory = getenv("TMPDIR");
	int fd;

	snprintf(path, 64, "%s/nvju.XXXXXX", directory && *directory ? directory : "/tmp");
	fd = mkstemp(path);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	close(fd);
	return path;
}

#endif
