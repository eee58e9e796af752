/* SPDX-License-Identifier: GPL-2.0 */
/* Found before the kernel's own header of this name: see jbd2.h beside it. */
#include <linux/jbd2.h>
