/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loads of a file system, for "daybook-bench ext4nvj": threads with the operations
 * of a mail server, or threads that create files. As a program, one run is one
 * process, which prints one line of JSON (result.c).
 *
 * 	main.c		the command line
 * 	crew.c		threads that start together
 * 	varmail.c	delete; create, append, fsync; read, append, fsync; read
 * 	create.c	files of 4 KiB in a tree of directories, fsync at the end; and
 * 			their deletion (clean)
 * 	random.c	random numbers, and the data to write
 * 	file.c		operations on one file
 * 	result.c	counters, and times of fsync
 *
 * They are written in C and linked statically: in an emulated guest, the
 * threads of a runtime would influence the measurement.
 *
 * varmail.c, create.c and random.c are also part of a kernel module, ../native,
 * which has its own main program, threads, operations on files, and result.
 */
#ifndef LOAD_H
#define LOAD_H

#ifdef __KERNEL__
#include <linux/fcntl.h>
#include <linux/kernel.h>

typedef struct file *load_file;
#define NO_FILE NULL
#else
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef int load_file;
#define NO_FILE (-1)
#endif

#define MAX_THREADS 256u
/*
 * For so many fsync calls of a thread the time is recorded. Further calls are
 * only counted.
 */
#define MAX_SYNCS 262144u
/* No path is longer: main.c limits the directory. */
#define MAX_PATH 256u
#define MAX_DIRECTORY 128u

/*
 * A load. If a system call fails, its functions end the program with a message.
 */
struct crew;
struct worker;
struct load {
	const char *name;
	/* Creates in the directory what a run needs, and writes it back. */
	void (*prepare)(struct crew *crew);
	/* Runs in each thread before the clock starts. */
	void (*begin)(struct worker *worker);
	/* Runs one operation. False: there are no more. */
	bool (*next)(struct worker *worker);
	/*
	 * Runs after the last operation, while the clock runs. NULL: nothing.
	 */
	void (*finish)(struct worker *worker);
};

extern const struct load load_varmail, load_create, load_clean;

#define BUFFER_BYTES (64u << 10)

/* The parameters of a run. */
struct crew {
	const struct load *load;
	const char *directory;
	unsigned threads;  /* 1..MAX_THREADS */
	unsigned files;    /* that varmail uses, or create makes */
	uint64_t limit_ns; /* of the run; 0: until there is no more to do */
	uint64_t seed;
	uint64_t begin_ns, end_ns; /* of the clock */
#ifndef __KERNEL__
	pthread_barrier_t barrier;
#endif
	/* The data to write: random, because a journal may omit zeros. */
	uint64_t content[BUFFER_BYTES / sizeof(uint64_t)];
};

/* One of its threads. */
struct worker {
	struct crew *crew;
	unsigned number;
	uint64_t random; /* state */
	uint64_t operations, syncs;
	uint32_t *sync_us; /* the first MAX_SYNCS, microseconds */
	bool begun;        /* in the kernel: load->begin has returned */
	uint64_t end_ns;
	/* varmail: its files; existing ones come first. */
	uint32_t *file;
	unsigned there, count, step;
	/* create: its next file, and the last one, which is open. */
	unsigned next;
	load_file last;
	char *buffer; /* BUFFER_BYTES, of what was read */
};

/* Runs all threads, and returns them for the result. */
struct worker *crew_run(struct crew *crew);
uint64_t now_ns(void);
/* Zeros. */
void *load_memory(size_t count, size_t size);
/* A random number less than bound, which is not 0. */
uint32_t random_below(struct worker *worker, uint32_t bound);
/* The start of a thread's random numbers. */
uint64_t random_seed(const struct crew *crew, unsigned thread);
/* Fills in the data to write. */
void random_contents(struct crew *crew);

/* File operations. If one fails, it ends the thread and names the path. */
load_file file_open(const char *path, int flags);
void file_close(load_file file);
void file_append(struct worker *worker, load_file file, size_t bytes);
void file_read(struct worker *worker, load_file file);
/* fsync, with its time recorded. */
void file_sync(struct worker *worker, load_file file);
bool file_exists(const char *path);
void file_delete(const char *path);
void directory_make(const char *path);
/* Writes back the whole file system at path. */
void filesystem_sync(const char *path);

/* Prints the line of JSON. */
void result_print(const struct crew *crew, const struct worker *workers);

/*
 * Ends the program, or in the kernel the run, with a message, and with the text of
 * error if that is not 0.
 */
__attribute__((noreturn, format(printf, 2, 3))) void fail(int error, const char *format, ...);

#endif
