/* SPDX-License-Identifier: GPL-2.0 */
/* See stdint.h: the kernel's headers define size_t, NULL and offsetof. */
#ifndef NVJK_STDDEF_H
#define NVJK_STDDEF_H

#include <linux/stddef.h>
#include <linux/types.h>

#endif
