// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include "unlock.h"

void nvju_unlock(int fd, pid_t opener)
{
	struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	if (getpid() == opener)
		(void)fcntl(fd, F_OFD_SETLK, &all);
}
