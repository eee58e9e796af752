/* SPDX-License-Identifier: GPL-2.0 */
/* See stdint.h: bool, true and false are in the kernel's types. */
#ifndef NVJK_STDBOOL_H
#define NVJK_STDBOOL_H

#include <linux/stddef.h>
#include <linux/types.h>

#endif
