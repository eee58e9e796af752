/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The programs that load a file system in the guest, for "daybook-bench
 * ext4nvj": threads that do a mail server's operations, or make files. One run
 * is one process; it prints one line of JSON (result.c).
 *
 *	main.c		the command line
 *	crew.c		threads that begin together
 *	varmail.c	delete; create, append, fsync; read, append, fsync; read
 *	create.c	files of 4 KiB in a tree of directories, fsync at the end
 *	file.c		what is done with one file
 *	result.c	counts, and times of fsync
 *
 * Written in C, and linked statically: in an emulated guest a runtime's own
 * threads would be a part of what is measured.
 */
#ifndef LOAD_H
#define LOAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_THREADS 256u
/* Calls of fsync whose times are kept, of a thread; more are counted only. */
#define MAX_SYNCS 262144u
/* No path is longer: the directory is bounded by main.c. */
#define MAX_PATH 256u
#define MAX_DIRECTORY 128u

/* One load. Its functions end the program with a message if a system call fails. */
struct crew;
struct worker;
struct load {
	const char *name;
	/* By itself: makes in the directory what a run needs, and writes it back. */
	void (*prepare)(struct crew *crew);
	/* In each thread, before the clock runs. */
	void (*begin)(struct worker *worker);
	/* One operation; false: there is no more to do. */
	bool (*next)(struct worker *worker);
	/* After the last one, still on the clock. NULL: nothing. */
	void (*finish)(struct worker *worker);
};

extern const struct load load_varmail, load_create;

#define BUFFER_BYTES (64u << 10)

/* What one run is told. */
struct crew {
	const struct load *load;
	const char *directory;
	unsigned threads;  /* 1..MAX_THREADS */
	unsigned files;    /* that varmail uses, or create makes */
	uint64_t limit_ns; /* of the run; 0: until there is no more to do */
	uint64_t seed;
	uint64_t begin_ns, end_ns; /* of the clock */
	pthread_barrier_t barrier;
	/* What is written: random. Zeros a journal may leave out. */
	uint64_t content[BUFFER_BYTES / sizeof(uint64_t)];
};

/* One of its threads. */
struct worker {
	struct crew *crew;
	unsigned number;
	uint64_t random; /* state */
	uint64_t operations, syncs;
	uint32_t *sync_us; /* the first MAX_SYNCS, microseconds */
	uint64_t end_ns;
	/* varmail: its files, those that are there first. */
	uint32_t *file;
	unsigned there, count, step;
	/* create: the next of its files, and the last one, open; -1: none. */
	unsigned next;
	int last;
	char *buffer; /* BUFFER_BYTES, of what was read */
};

/* Runs all of them, and returns them for the result. */
struct worker *crew_run(struct crew *crew);
uint64_t now_ns(void);
/* Below bound, which is not 0. */
uint32_t random_below(struct worker *worker, uint32_t bound);

/* Makes what is written. */
void file_contents(struct crew *crew);
/* File operations; each that fails ends the program, naming the path. */
int file_open(const char *path, int flags);
void file_close(int file);
void file_append(struct worker *worker, int file, size_t bytes);
void file_read(struct worker *worker, int file);
/* fsync, its time taken. */
void file_sync(struct worker *worker, int file);
void directory_make(const char *path);
/* Writes all of the file system at path back. */
void filesystem_sync(const char *path);

/* The line of JSON. */
void result_print(const struct crew *crew, const struct worker *workers);

/* Ends the program with a message; with errno's if error is not 0. */
__attribute__((noreturn, format(printf, 2, 3))) void fail(int error, const char *format, ...);

#endif
