// SPDX-License-Identifier: GPL-2.0
/* Operations on one file, as the system calls of the same names do them. */
#include "load_threads.h"

#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/namei.h>

load_file file_open(const char *path, int flags)
{
	struct file *file = file_open_root(&load_root, path, flags | O_LARGEFILE, 0600);

	if (IS_ERR(file))
		fail((int)PTR_ERR(file), "cannot open %s", path);
	return file;
}

void file_close(load_file file)
{
	/* At once, as close does. fput of a thread of the kernel is late. */
	__fput_sync(file);
}

void file_append(struct worker *worker, load_file file, size_t bytes)
{
	ssize_t done = kernel_write(file, worker->crew->content, bytes, &file->f_pos);

	if (done != (ssize_t)bytes)
		fail((int)min(done, 0), "wrote %zd of %zu bytes", done, bytes);
}

void file_read(struct worker *worker, load_file file)
{
	ssize_t bytes;

	do {
		bytes = kernel_read(file, worker->buffer, BUFFER_BYTES, &file->f_pos);
		if (bytes < 0)
			fail((int)bytes, "cannot read");
	} while (bytes);
}

void file_sync(struct worker *worker, load_file file)
{
	uint64_t begin = now_ns(), us;
	int error = vfs_fsync(file, 0);

	if (error)
		fail(error, "cannot fsync");
	us = (now_ns() - begin) / 1000;
	if (worker->syncs < MAX_SYNCS)
		worker->sync_us[worker->syncs] = us < U32_MAX ? (uint32_t)us : U32_MAX;
	worker->syncs++;
}

bool file_exists(const char *path)
{
	struct path found;

	if (vfs_path_lookup(load_root.dentry, load_root.mnt, path, 0, &found))
		return false;
	path_put(&found);
	return true;
}

static int delete_in(const struct path *parent, const char *name)
{
	struct mnt_idmap *idmap = mnt_idmap(parent->mnt);
	struct inode *inode;
	struct dentry *entry;
	int error = mnt_want_write(parent->mnt);

	if (error)
		return error;
	entry = start_removing(idmap, parent->dentry, &QSTR(name));
	if (IS_ERR(entry)) {
		mnt_drop_write(parent->mnt);
		return PTR_ERR(entry);
	}
	inode = d_inode(entry);
	ihold(inode);
	error = vfs_unlink(idmap, d_inode(parent->dentry), entry, NULL);
	end_removing(entry);
	iput(inode); /* which truncates it, without the directory's lock */
	mnt_drop_write(parent->mnt);
	return error;
}

void file_delete(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	char directory[MAX_PATH];
	struct path parent;
	int error;

	strscpy(directory, path, min(sizeof(directory), (size_t)(name - path)));
	error = vfs_path_lookup(load_root.dentry, load_root.mnt, directory, LOOKUP_DIRECTORY,
				&parent);
	if (!error) {
		error = delete_in(&parent, name);
		path_put(&parent);
	}
	if (error)
		fail(error, "cannot delete %s", path);
}
