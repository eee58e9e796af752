/* SPDX-License-Identifier: GPL-2.0 */
/* See stdint.h: size_t, NULL and offsetof are in the kernel's headers. */
#ifndef NVJK_STDDEF_H
#define NVJK_STDDEF_H

#include <linux/stddef.h>
#include <linux/types.h>

#endif
