/* SPDX-License-Identifier: Apache-2.0 */
/* A file system as the caller of the journal. */
#ifndef TRANSFERS_CALLERS_H
#define TRANSFERS_CALLERS_H

#include <stdbool.h>
#include <stdint.h>

#include "../engine.h"

struct callers {
	uint64_t handle_ps;  /* work in a handle, the mean; 0: no such caller */
	uint64_t between_ps; /* work between operations, the mean */
	bool merge;          /* a handle that ends after a later one began joins both */
	bool alone;          /* the platform says that its threads are alone on their processors */
};

/* Before an engine is opened. */
void callers_set(const struct callers *c);
bool callers_are_alone(void);
/* One operation; returns 0 or an error of the journal. */
int callers_apply(struct nvj *journal, struct worker *w, const struct operation *o);

#endif
