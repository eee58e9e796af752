/* SPDX-License-Identifier: Apache-2.0 */
/* The number of the machine's processors, for nvj_usual_partitions. */
#ifndef NVJU_PRESENT_H
#define NVJU_PRESENT_H

#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/*
 * The processors that the machine has, whether they are online or not. It may have
 * slots for many more: a ring for each of these would have no records.
 */
static inline uint32_t nvju_count_processors(void)
{
	FILE *list = fopen("/sys/devices/system/cpu/present", "re");
	unsigned first, last, count = 0;
	long online;

	while (list && fscanf(list, "%u", &first) == 1) {
		if (fscanf(list, "-%u", &last) != 1)
			last = first;
		if (last < first)
			break;
		count += last - first + 1;
		if (fgetc(list) != ',')
			break;
	}
	if (list)
		fclose(list);
	if (count)
		return count;
	online = sysconf(_SC_NPROCESSORS_ONLN);
	return online < 1 ? 1 : (uint32_t)online;
}

#endif
