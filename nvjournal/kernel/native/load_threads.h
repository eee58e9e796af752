/* SPDX-License-Identifier: GPL-2.0 */
/* The loads of ../bench in the kernel: load_threads.c runs them, load_files.c has the files. */
#ifndef LOAD_THREADS_H
#define LOAD_THREADS_H

#include "load.h"

#include <linux/path.h>

/* The directory of the run, to which all paths are relative. */
extern struct path load_root;

#endif
