/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The result of a run, as one line of JSON: times in seconds. A percentile is
 * computed from the fsync calls of all threads together: the least time that
 * this part of them did not exceed.
 */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Of sorted times; 0 if there are none. */
static double percentile(const uint32_t *us, size_t count, unsigned percent)
{
	if (!count)
		return 0;
	return us[(count * percent + 99) / 100 - 1] / 1e6;
}

void result_print(const struct crew *crew, const struct worker *workers)
{
	uint64_t operations = 0, syncs = 0;
	size_t count = 0;
	uint32_t *all;

	for (unsigned n = 0; n < crew->threads; n++) {
		operations += workers[n].operations;
		syncs += workers[n].syncs;
	}
	all = calloc(syncs + 1, sizeof(*all));
	if (!all)
		fail(0, "no memory for %llu times", (unsigned long long)syncs);
	for (unsigned n = 0; n < crew->threads; n++)
		for (uint64_t k = 0; k < workers[n].syncs && k < MAX_SYNCS; k++)
			all[count++] = workers[n].sync_us[k];
	qsort(all, count, sizeof(*all), compare);
	printf("{\"operations\": %llu, \"seconds\": %.6f, \"syncs\": %llu, "
	       "\"sync_p50_seconds\": %.6f, \"sync_p95_seconds\": %.6f, "
	       "\"sync_p99_seconds\": %.6f}\n",
	       (unsigned long long)operations, (double)(crew->end_ns - crew->begin_ns) / 1e9,
	       (unsigned long long)syncs, percentile(all, count, 50), percentile(all, count, 95),
	       percentile(all, count, 99));
	free(all);
}
