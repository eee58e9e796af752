/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes a workload through crashes: for every point between two events of its
 * trace, images that a crash could leave there are made, recovered and compared
 * with the oracle. From one of them the next generation goes on, and its first
 * events are those of the recovery. Or it goes on as after a kill of the process
 * alone: it finds all that was written, but what was not fenced may still be lost
 * when the power fails later.
 */
#ifndef TEST_CHECKER_H
#define TEST_CHECKER_H

#include "workload.h"

struct checker_counts {
	uint64_t runs, generations, points;
	uint64_t images;          /* that differ, recovered */
	uint64_t in_recovery;     /* of these, of a crash before nvj_open returned */
	uint64_t recovered_twice; /* recovered once more: nothing to do, the same content */
	uint64_t kills;           /* generations that began after a kill */
	uint64_t in_format;       /* images of a crash before nvj_format returned */
	uint64_t by_pages;        /* images of a plain file */
	uint64_t in_threads;      /* generations whose recovery ran in threads */
	uint64_t whole_points;    /* points of which all images were made */
	uint64_t violations;
	uint64_t merged, wraps, start_waits, frozen, checkpoints, revokes;
};

struct checker_options {
	uint32_t images_per_point;
	uint32_t one_point_in; /* points are looked at once in so many; 0: all */
	bool stop_at_violation;
	uint64_t most_images; /* 0: no bound */
};

/* One workload with one seed, all its generations. Violations are printed. */
void checker_run(const struct workload *w, uint64_t seed, const struct checker_options *options,
		 struct checker_counts *counts);

#endif
