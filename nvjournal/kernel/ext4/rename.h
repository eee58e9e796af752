/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Read before each of ext4's files (Kbuild): slab caches of KMEM_CACHE get names
 * of their own, as those of the kernel's ext4 may be there, too.
 */
#ifndef EXT4NVJ_RENAME_H
#define EXT4NVJ_RENAME_H

#include <linux/slab.h>

#undef KMEM_CACHE
#define KMEM_CACHE(type, flags)                                                                    \
	kmem_cache_create("ext4nvj_" #type, sizeof(struct type), __alignof__(struct type),         \
			  (flags), NULL)

#endif
