// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for the engine. It allocates two kinds. When a journal is opened, it
 * allocates tables; that may fail. While the journal grows, it allocates blocks
 * and slabs of some KiB within handles; a failure there would abort an operation
 * of the file system halfway. So these allocations wait and do not fail. Memory
 * reclaim for them must not enter the file system, because it might wait for
 * the same handle.
 *
 * The engine holds locks while it allocates them. An allocation that may wait
 * also gives the processor to another thread whose turn it is, and then all
 * threads that need these locks wait for that thread. So first memory is taken
 * that is there without waiting.
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

/* What is there without waiting. */
#define AT_ONCE (GFP_NOWAIT | __GFP_NOWARN)

/*
 * A block of an image, of which there are many, is a page: Debian's kernels clear
 * each page that they allocate (init_on_alloc). kvzalloc would clear it again.
 */
static bool is_page(size_t bytes)
{
	return bytes == PAGE_SIZE;
}

static void *allocate_page(gfp_t clear)
{
	unsigned long page = __get_free_page(AT_ONCE | clear);
	unsigned int nofs;

	if (unlikely(!page)) {
		nofs = memalloc_nofs_save();
		page = __get_free_page(GFP_KERNEL | __GFP_NOFAIL | clear);
		memalloc_nofs_restore(nofs);
	}
	return (void *)page;
}

static void *allocate_slab(size_t bytes)
{
	void *memory = kzalloc(bytes, AT_ONCE | __GFP_NORETRY);

	return memory ? memory : kvzalloc(bytes, GFP_KERNEL | __GFP_NOFAIL);
}

void *nvjk_allocate(void *context, size_t bytes)
{
	unsigned int nofs = memalloc_nofs_save();
	void *memory;

	if (is_page(bytes))
		memory = allocate_page(__GFP_ZERO);
	else if (bytes <= NEVER_FAILS_BYTES)
		memory = allocate_slab(aligned_size(bytes));
	else if (bytes <= SZ_1G)
		memory = kvzalloc(bytes, GFP_KERNEL);
	else
		memory = vzalloc(bytes); /* kvmalloc warns of such sizes */
	memalloc_nofs_restore(nofs);
	return memory;
}

/* Not cleared: the engine stores all of it before it reads it. */
void *nvjk_allocate_block(void *context)
{
	return is_page(NVJ_BLOCK_BYTES) ? allocate_page(0)
					: nvjk_allocate(context, NVJ_BLOCK_BYTES);
}

void nvjk_release(void *context, void *memory, size_t bytes)
{
	if (is_page(bytes))
		free_page((unsigned long)memory);
	else
		kvfree(memory);
}
