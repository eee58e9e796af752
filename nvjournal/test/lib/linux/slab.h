/* SPDX-License-Identifier: GPL-2.0 */
/* In place of the kernel's header of this name, for kernel_disk.c, which has what is used of it. */
