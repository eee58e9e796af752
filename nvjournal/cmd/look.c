/* SPDX-License-Identifier: Apache-2.0 */
/* A look at a region that cannot change it: the mapping is without write access. */
#include <errno.h>
#include <string.h>

#include "nvj.h"

int look_at(struct look *look, const char *file, uint64_t offset, bool even_if_in_use)
{
	int error;

	memset(look, 0, sizeof(*look));
	error = nvju_region_open(&look->region, file, offset, 0, NVJU_READ_ONLY);
	if (error == -EBUSY && even_if_in_use) {
		look->in_use = true;
		error = nvju_region_open(&look->region, file, offset, 0,
					 NVJU_READ_ONLY | NVJU_UNLOCKED);
	}
	if (error) {
		complain("%s", nvju_error());
		return EXIT_UNUSABLE;
	}
	nvju_platform_init(&look->platform, NULL);
	look->super_error = nvj_read_super(nvju_region(look->region), &look->super);
	return 0;
}

void look_away(struct look *look)
{
	nvju_region_close(look->region);
}
