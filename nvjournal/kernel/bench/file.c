/* SPDX-License-Identifier: GPL-2.0 */
/* Operations on one file. */
#include "load.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

load_file file_open(const char *path, int flags)
{
	int file = open(path, flags | O_CLOEXEC, 0600);

	if (file < 0)
		fail(errno, "cannot open %s", path);
	return file;
}

void file_close(load_file file)
{
	if (close(file))
		fail(errno, "cannot close a file");
}

void file_append(struct worker *worker, load_file file, size_t bytes)
{
	ssize_t done;

	done = write(file, worker->crew->content, bytes);
	if (done < 0)
		fail(errno, "cannot write %zu bytes", bytes);
	if ((size_t)done != bytes)
		fail(0, "wrote %zd of %zu bytes: the file system is full", done, bytes);
}

void file_read(struct worker *worker, load_file file)
{
	ssize_t bytes;

	do {
		bytes = read(file, worker->buffer, BUFFER_BYTES);
		if (bytes < 0)
			fail(errno, "cannot read");
	} while (bytes);
}

void file_sync(struct worker *worker, load_file file)
{
	uint64_t begin = now_ns(), us;

	if (fsync(file))
		fail(errno, "cannot fsync");
	us = (now_ns() - begin) / 1000;
	if (worker->syncs < MAX_SYNCS)
		worker->sync_us[worker->syncs] = us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	worker->syncs++;
}

bool file_exists(const char *path)
{
	return !access(path, F_OK);
}

void file_delete(const char *path)
{
	if (unlink(path))
		fail(errno, "cannot delete %s", path);
}

void directory_make(const char *path)
{
	if (mkdir(path, 0700))
		fail(errno, "cannot make directory %s", path);
}

void filesystem_sync(const char *path)
{
	int directory = file_open(path, O_RDONLY | O_DIRECTORY);

	if (syncfs(directory))
		fail(errno, "cannot sync the file system of %s", path);
	file_close(directory);
}
