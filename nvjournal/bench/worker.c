/* SPDX-License-Identifier: Apache-2.0 */
/* What engines have in common. */
#include "engine.h"

#include <string.h>

/* Added to each byte of an image where zeros are to be none. */
#define NOT_ZERO 0x5a

uint8_t *worker_change(struct worker *w, const struct update *u)
{
	uint8_t *image = w->images + (size_t)u->index * NVJ_BLOCK_BYTES;
	const uint8_t *line = u->lines;

	for (uint64_t left = u->mask; left; left &= left - 1) {
		uint8_t *to = image + NVJ_LINE_BYTES * (unsigned)__builtin_ctzll(left);

		memcpy(to, line, NVJ_LINE_BYTES);
		if (w->engine->without_zeros)
			for (unsigned n = 0; n < NVJ_LINE_BYTES; n++)
				to[n] ^= NOT_ZERO;
		line += NVJ_LINE_BYTES;
	}
	return image;
}

void baseline_lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t spins;

	pthread_mutexattr_init(&spins);
	pthread_mutexattr_settype(&spins, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &spins);
	pthread_mutexattr_destroy(&spins);
}

int commit_nothing(struct engine *e, struct worker *w)
{
	(void)e;
	(void)w;
	return 0;
}
