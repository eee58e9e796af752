/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The types of the C library's header of this name that the engine needs, from
 * the kernel.
 */
#ifndef NVJK_STDINT_H
#define NVJK_STDINT_H

#include <linux/limits.h>
#include <linux/types.h>

#define UINT64_C(number) number##ULL

#ifndef UINT32_MAX
#define UINT32_MAX U32_MAX
#endif
#ifndef UINT64_MAX
#define UINT64_MAX U64_MAX
#endif

#endif
