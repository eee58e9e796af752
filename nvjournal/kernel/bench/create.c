/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Creates files of 4 KiB in a tree of directories, like tokubench:
 * DIRECTORY_FILES in a directory, TREE_WIDTH directories in one above. All
 * files of a directory belong to one thread. So the threads share the file
 * system, and not the lock of a directory. Each thread calls fsync once, for
 * its last file. Until then the journal decides when it commits.
 *
 * The load clean deletes what a run of create with the same number of threads
 * made, so that the directories can be used again.
 */
#include "load.h"

#define DIRECTORY_FILES 32u
#define TREE_WIDTH 16u
#define CREATE_BYTES 4096u

static unsigned directories(const struct crew *crew)
{
	return (crew->files + DIRECTORY_FILES - 1) / DIRECTORY_FILES;
}

#ifndef __KERNEL__
static void prepare(struct crew *crew)
{
	char path[MAX_PATH];

	for (unsigned n = 0; n < directories(crew); n++) {
		if (n % TREE_WIDTH == 0) {
			snprintf(path, sizeof(path), "%s/a%04u", crew->directory, n / TREE_WIDTH);
			directory_make(path);
		}
		snprintf(path, sizeof(path), "%s/a%04u/b%02u", crew->directory, n / TREE_WIDTH,
			 n % TREE_WIDTH);
		directory_make(path);
	}
	filesystem_sync(crew->directory);
}
#endif

/*
 * next counts the files of a thread, directory by directory. A thread has each
 * threads-th directory.
 */
static void begin(struct worker *worker)
{
	worker->next = 0;
}

/* The path of the thread's next file. False: it has no more. */
static bool next_path(struct worker *worker, char path[MAX_PATH])
{
	struct crew *crew = worker->crew;
	unsigned in =
		worker->next / DIRECTORY_FILES * crew->threads + worker->number; /* directory */
	unsigned n = in * DIRECTORY_FILES + worker->next % DIRECTORY_FILES;

	if (in >= directories(crew) || n >= crew->files)
		return false;
	snprintf(path, MAX_PATH, "%s/a%04u/b%02u/f%07u", crew->directory, in / TREE_WIDTH,
		 in % TREE_WIDTH, n);
	worker->next++;
	return true;
}

static bool next(struct worker *worker)
{
	char path[MAX_PATH];

	if (!next_path(worker, path))
		return false;
	if (worker->last != NO_FILE)
		file_close(worker->last);
	worker->last = file_open(path, O_WRONLY | O_CREAT | O_EXCL);
	file_append(worker, worker->last, CREATE_BYTES);
	return true;
}

/* A run of create with a time limit has not made all files. */
static bool delete_next(struct worker *worker)
{
	char path[MAX_PATH];

	if (!next_path(worker, path) || !file_exists(path))
		return false;
	file_delete(path);
	return true;
}

static void finish(struct worker *worker)
{
	if (worker->last == NO_FILE)
		return;
	file_sync(worker, worker->last);
	file_close(worker->last);
}

const struct load load_create = {
	.name = "create",
#ifndef __KERNEL__
	.prepare = prepare,
#endif
	.begin = begin,
	.next = next,
	.finish = finish,
};

const struct load load_clean = {
	.name = "clean",
#ifndef __KERNEL__
	.prepare = prepare,
#endif
	.begin = begin,
	.next = delete_next,
};
