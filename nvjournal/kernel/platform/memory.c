// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for the engine. It allocates two kinds. When a journal is opened, it
 * allocates tables; that may fail. While the journal grows, it allocates slabs
 * of about 64 KiB within handles; a failure there would abort an operation of
 * the file system halfway. So these allocations wait and do not fail. Memory
 * reclaim for them must not enter the file system, because it might wait for
 * the same handle.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "internal.h"

/*
 * An allocation of at most this size does not fail. All slabs of the engine are
 * smaller.
 */
#define NEVER_FAILS_BYTES SZ_128K

/*
 * kmalloc aligns powers of two to their size. Other sizes up to 192 bytes may
 * be aligned to 8 bytes only.
 */
static size_t aligned_size(size_t bytes)
{
	if (bytes < NVJ_LINE_BYTES)
		return NVJ_LINE_BYTES;
	return bytes < 256 ? roundup_pow_of_two(bytes) : bytes;
}

/*
 * A block of an image, of which there are many, is a page: Debian's kernels clear
 * each page that they allocate (init_on_alloc). kvzalloc would clear it again.
 */
static bool is_page(size_t bytes)
{
	return bytes == PAGE_SIZE;
}

void *nvjk_allocate(void *context, size_t bytes)
{
	unsigned int nofs = memalloc_nofs_save();
	void *memory;

	if (is_page(bytes))
		memory = (void *)get_zeroed_page(GFP_KERNEL | __GFP_NOFAIL);
	else if (bytes <= NEVER_FAILS_BYTES)
		memory = kvzalloc(aligned_size(bytes), GFP_KERNEL | __GFP_NOFAIL);
	else if (bytes <= SZ_1G)
		memory = kvzalloc(bytes, GFP_KERNEL);
	else
		memory = vzalloc(bytes); /* kvmalloc warns of such sizes */
	memalloc_nofs_restore(nofs);
	return memory;
}

void nvjk_release(void *context, void *memory, size_t bytes)
{
	if (is_page(bytes))
		free_page((unsigned long)memory);
	else
		kvfree(memory);
}
