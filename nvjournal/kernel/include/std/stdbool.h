/* SPDX-License-Identifier: GPL-2.0 */
/* See stdint.h: the kernel's types include bool, true and false. */
#ifndef NVJK_STDBOOL_H
#define NVJK_STDBOOL_H

#include <linux/stddef.h>
#include <linux/types.h>

#endif
