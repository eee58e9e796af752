/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kernel types and constants that only the counting of calls reads; see
 * kernel.h.
 */
#ifndef DAYBOOK_SYSCALLS_H
#define DAYBOOK_SYSCALLS_H

/* include/uapi/asm-generic/fcntl.h, on every architecture but alpha, mips, parisc, sparc */
#define O_TRUNC 00001000
#define O_TMPFILE_BIT 020000000 /* __O_TMPFILE */
/* include/uapi/linux/fcntl.h */
#define AT_REMOVEDIR 0x200
/* include/linux/fs.h: set on the file that an open created, since 4.19 */
#define FMODE_CREATED (1 << 20)
/* include/uapi/linux/stat.h */
#define S_IFREG 0100000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct file___mode {
	unsigned int f_mode;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_struct___files {
	struct files_struct *files;
};

#pragma clang attribute pop

#endif
