/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The compiler finds this before the kernel's own header of this name: see
 * jbd2.h.
 */
#include <linux/jbd2.h>
