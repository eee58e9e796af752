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

int look_at_journal(struct look *look, const char *file, uint64_t offset, bool even_if_in_use)
{
	int result = look_at(look, file, offset, even_if_in_use);

	if (result || !look->super_error)
		return result;
	complain_of_journal(file, look->super_error);
	look_away(look);
	return EXIT_UNUSABLE;
}

void look_away(struct look *look)
{
	nvju_region_close(look->region);
}
