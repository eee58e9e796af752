/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Read before each of ext4's files (Kbuild). The slab caches of KMEM_CACHE get
 * other names, because the kernel's own ext4 may have caches with the same
 * names.
 */
#ifndef EXT4NVJ_RENAME_H
#define EXT4NVJ_RENAME_H

#include <linux/slab.h>

#undef KMEM_CACHE
#define KMEM_CACHE(type, flags)                                                                    \
	kmem_cache_create("ext4nvj_" #type, sizeof(struct type), __alignof__(struct type),         \
			  (flags), NULL)

#endif
