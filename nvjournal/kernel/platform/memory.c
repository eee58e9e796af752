// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for the engine. It asks for two kinds: tables, once, as a journal is
 * opened, which may fail; and slabs of some 64 KiB while the journal grows, within
 * handles, where a failure would abort the file system's operation half done.
 * Those are waited for. Reclaim must not come back into the file system for them:
 * it might wait for the very handle.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "internal.h"

/* Up to this it does not fail: larger than any slab of the engine. */
#define NEVER_FAILS_BYTES SZ_128K

/*
 * kmalloc aligns powers of two to themselves, and other sizes, in its odd caches
 * of up to 192 bytes, to 8 bytes at times.
 */
static size_t aligned_size(size_t bytes)
{
	if (bytes < NVJ_LINE_BYTES)
		return NVJ_LINE_BYTES;
	return bytes < 256 ? roundup_pow_of_two(bytes) : bytes;
}

void *nvjk_allocate(void *context, size_t bytes)
{
	unsigned int nofs = memalloc_nofs_save();
	void *memory;

	if (bytes <= NEVER_FAILS_BYTES)
		memory = kvzalloc(aligned_size(bytes), GFP_KERNEL | __GFP_NOFAIL);
	else if (bytes <= SZ_1G)
		memory = kvzalloc(bytes, GFP_KERNEL);
	else
		memory = vzalloc(bytes); /* kvmalloc takes such sizes for mistakes */
	memalloc_nofs_restore(nofs);
	return memory;
}

void nvjk_release(void *context, void *memory, size_t bytes)
{
	kvfree(memory);
}
