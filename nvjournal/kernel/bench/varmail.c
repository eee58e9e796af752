/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The files of a mail server, as in filebench's varmail. Each thread repeats
 * four steps; each is one operation:
 *
 * 	delete a file
 * 	create one, append, fsync
 * 	read one, append, fsync
 * 	read one
 *
 * An append has 8 KiB on average, so a file after one more append has 16 KiB on
 * average. The files are in MAIL_DIRECTORIES directories, which all threads
 * share. File n belongs to thread n mod threads. At the start half of the files
 * exist. The load is that of internal/blockstream, whose recordings are used to
 * measure nvjournal itself.
 */
#include "load.h"

#define MAIL_DIRECTORIES 20u
#define MAIL_APPEND (16u << 10) /* less than this */

static void mail_path(const struct crew *crew, unsigned n, char path[MAX_PATH])
{
	snprintf(path, MAX_PATH, "%s/d%02u/m%06u", crew->directory, n % MAIL_DIRECTORIES, n);
}

static size_t mail_bytes(struct worker *worker)
{
	return 1 + random_below(worker, MAIL_APPEND - 1);
}

#ifndef __KERNEL__
static void directory_path(const struct crew *crew, unsigned n, char path[MAX_PATH])
{
	snprintf(path, MAX_PATH, "%s/d%02u", crew->directory, n % MAIL_DIRECTORIES);
}

/* Makes the directories and half of the files. */
static void prepare(struct crew *crew)
{
	struct worker worker = {.crew = crew, .random = crew->seed};
	char path[MAX_PATH];

	for (unsigned n = 0; n < MAIL_DIRECTORIES; n++) {
		directory_path(crew, n, path);
		directory_make(path);
	}
	for (unsigned n = 0; n < crew->files; n++) {
		load_file file;

		/*
		 * In groups of sixteen, so that each thread has half of its
		 * files, too.
		 */
		if (n / 16 % 2)
			continue;
		mail_path(crew, n, path);
		file = file_open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
		file_append(&worker, file, mail_bytes(&worker));
		file_close(file);
	}
	filesystem_sync(crew->directory);
}
#endif

/* Finds out which of its files exist. */
static void begin(struct worker *worker)
{
	struct crew *crew = worker->crew;
	char path[MAX_PATH];

	worker->file = load_memory(crew->files / crew->threads + 1, sizeof(*worker->file));
	for (unsigned n = worker->number; n < crew->files; n += crew->threads) {
		unsigned at = worker->count++;

		mail_path(crew, n, path);
		if (file_exists(path)) {
			worker->file[at] = worker->file[worker->there];
			at = worker->there++;
		}
		worker->file[at] = n;
	}
	/* So that the threads do not all delete at the same time. */
	worker->step = worker->number;
}

static void exchange(struct worker *worker, unsigned a, unsigned b)
{
	uint32_t kept = worker->file[a];

	worker->file[a] = worker->file[b];
	worker->file[b] = kept;
}

static void delete_one(struct worker *worker)
{
	unsigned at = random_below(worker, worker->there);
	char path[MAX_PATH];

	mail_path(worker->crew, worker->file[at], path);
	file_delete(path);
	exchange(worker, at, --worker->there);
}

static void create_one(struct worker *worker)
{
	unsigned at = worker->there + random_below(worker, worker->count - worker->there);
	char path[MAX_PATH];
	load_file file;

	mail_path(worker->crew, worker->file[at], path);
	file = file_open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
	file_append(worker, file, mail_bytes(worker));
	file_sync(worker, file);
	file_close(file);
	exchange(worker, at, worker->there++);
}

static void read_one(struct worker *worker, bool append)
{
	char path[MAX_PATH];
	load_file file;

	mail_path(worker->crew, worker->file[random_below(worker, worker->there)], path);
	file = file_open(path, append ? O_RDWR | O_APPEND : O_RDONLY);
	file_read(worker, file);
	if (append) {
		file_append(worker, file, mail_bytes(worker));
		file_sync(worker, file);
	}
	file_close(file);
}

static bool next(struct worker *worker)
{
	unsigned step = worker->step++ % 4;

	/*
	 * Deletes and creates alternate. Files can only be missing if there
	 * were none at the start.
	 */
	if (!worker->there)
		step = 1;
	else if (worker->there == worker->count && step == 1)
		step = 0;
	switch (step) {
	case 0:
		delete_one(worker);
		break;
	case 1:
		create_one(worker);
		break;
	case 2:
		read_one(worker, true);
		break;
	default:
		read_one(worker, false);
	}
	return true;
}

const struct load load_varmail = {
	.name = "varmail",
#ifndef __KERNEL__
	.prepare = prepare,
#endif
	.begin = begin,
	.next = next,
};
