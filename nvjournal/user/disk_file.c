/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks that are files or block devices. They are opened with O_DIRECT where
 * that works: the blocks that a checkpoint writes are not read again soon, and
 * would only fill the page cache. Each queue is created when it is first used.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"
#include "error.h"
#include "unlock.h"

struct file_disk {
	struct nvju_disk disk;
	int fd;
	pid_t opener; /* the process that has locked it */
	bool direct, uring, device;
	bool flush_failed; /* atomic: permanent, because the kernel drops failed writes */
	struct nvju_queue *queues[NVJ_MAX_QUEUES];
	char path[];
};

/*
 * Block numbers come from the journal, which may have any. The bytes of a higher
 * one would be those of another block.
 */
#define MOST_BLOCKS ((uint64_t)INT64_MAX / NVJ_BLOCK_BYTES)

static int file_read(struct nvju_disk *disk, uint64_t block, void *image)
{
	struct file_disk *file = (struct file_disk *)disk;
	_Alignas(4096) uint8_t aligned[NVJ_BLOCK_BYTES];
	uint8_t *to = (uintptr_t)image % NVJ_BLOCK_BYTES ? aligned : image;
	size_t have = 0;

	if (block >= MOST_BLOCKS)
		return nvju_fail(NVJ_EIO, "cannot read block %llu of disk %s: %s",
				 (unsigned long long)block, file->path, strerror(EFBIG));
	while (have < NVJ_BLOCK_BYTES) {
		ssize_t n = pread(file->fd, to + have, NVJ_BLOCK_BYTES - have,
				  (off_t)(block * NVJ_BLOCK_BYTES + have));

		if (n < 0 && errno == EINTR)
			continue;
		/*
		 * After a part of a sector there is only the end of the file.
		 */
		if (n < 0 && errno == EINVAL && have)
			n = 0;
		if (n < 0 || (n == 0 && file->device))
			return nvju_fail(NVJ_EIO, "cannot read block %llu of disk %s: %s",
					 (unsigned long long)block, file->path,
					 n < 0 ? strerror(errno) : "the disk ends before it");
		if (n == 0)
			break;
		have += (size_t)n;
	}
	memset(to + have, 0, NVJ_BLOCK_BYTES - have);
	if (to != image)
		memcpy(image, to, NVJ_BLOCK_BYTES);
	return 0;
}

static int file_start_write(struct nvju_disk *disk, unsigned queue, struct nvj_write *write)
{
	struct file_disk *file = (struct file_disk *)disk;

	if (write->block >= MOST_BLOCKS)
		return nvju_fail(NVJ_EIO, "cannot write block %llu of disk %s: %s",
				 (unsigned long long)write->block, file->path, strerror(EFBIG));
	if (!file->queues[queue]) {
		file->queues[queue] =
			nvju_queue_new(file->fd, file->path, file->direct, file->uring);
		if (!file->queues[queue])
			return nvju_fail(NVJ_EIO, "cannot write block %llu of disk %s: no memory",
					 (unsigned long long)write->block, file->path);
	}
	return nvju_queue_start(file->queues[queue], write);
}

static struct nvj_write *file_finish_write(struct nvju_disk *disk, unsigned queue)
{
	struct file_disk *file = (struct file_disk *)disk;

	return file->queues[queue] ? nvju_queue_finish(file->queues[queue]) : NULL;
}

static int file_flush(struct nvju_disk *disk)
{
	struct file_disk *file = (struct file_disk *)disk;

	if (__atomic_load_n(&file->flush_failed, __ATOMIC_RELAXED))
		return nvju_fail(NVJ_EIO,
				 "cannot flush disk %s: it failed before, and what it lost then is "
				 "not known; open it again and recover",
				 file->path);
	if (fdatasync(file->fd) == 0)
		return 0;
	__atomic_store_n(&file->flush_failed, true, __ATOMIC_RELAXED);
	return nvju_fail(NVJ_EIO, "cannot flush disk %s: %s", file->path, strerror(errno));
}

static void file_close(struct nvju_disk *disk)
{
	struct file_disk *file = (struct file_disk *)disk;
	unsigned n;

	for (n = 0; n < NVJ_MAX_QUEUES; n++)
		nvju_queue_free(file->queues[n]);
	if (file->fd >= 0) {
		nvju_unlock(file->fd, file->opener);
		close(file->fd);
	}
	free(file);
}

static const struct nvju_disk_kind file_kind = {
	.read = file_read,
	.start_write = file_start_write,
	.finish_write = file_finish_write,
	.flush = file_flush,
	.close = file_close,
};

/* Some file systems accept the flag, and then refuse the first read. */
static bool direct_works(int fd)
{
	_Alignas(4096) uint8_t block[NVJ_BLOCK_BYTES];

	return pread(fd, block, sizeof(block), 0) >= 0;
}

/*
 * Takes an open-file-description lock of a file that is written. Two journals with
 * the same disk would overwrite the blocks of each other. Devices have O_EXCL.
 */
static int lock(const struct file_disk *file)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	/* Some file systems have no locks. */
	if (fcntl(file->fd, F_OFD_SETLK, &all) == 0 || (errno != EAGAIN && errno != EACCES))
		return 0;
	return nvju_fail(-EBUSY,
			 "cannot open disk %s: it is in use by a process (see fuser %s, or lsof), "
			 "or it is the region of a journal; end it, or take another disk",
			 file->path, file->path);
}

static int no_disk(const struct file_disk *file)
{
	return nvju_fail(NVJ_EINVAL,
			 "cannot open disk %s: it is neither a file nor a block device; give one",
			 file->path);
}

static int open_file(struct file_disk *file, unsigned flags)
{
	int mode = (flags & NVJU_DISK_READ_ONLY ? O_RDONLY : O_RDWR) | O_CLOEXEC;
	struct stat status;

	if (flags & NVJU_DISK_CREATE && !(flags & NVJU_DISK_READ_ONLY))
		mode |= O_CREAT;
	/*
	 * A mounted device is refused (O_EXCL), because the file system would
	 * write to it, too.
	 */
	if (stat(file->path, &status) == 0) {
		/* An open of a pipe would wait for a writer. */
		if (S_ISFIFO(status.st_mode))
			return no_disk(file);
		file->device = S_ISBLK(status.st_mode);
		if (file->device && !(flags & NVJU_DISK_READ_ONLY))
			mode = (mode & ~O_CREAT) | O_EXCL;
	}
	if (!(flags & NVJU_DISK_BUFFERED)) {
		file->fd = open(file->path, mode | O_DIRECT, 0600);
		if (file->fd >= 0 && direct_works(file->fd)) {
			file->direct = true;
		} else if (file->fd >= 0) {
			close(file->fd);
			file->fd = -1;
		}
	}
	if (file->fd < 0)
		file->fd = open(file->path, mode, 0600);
	if (file->fd < 0)
		return nvju_fail(-errno, "cannot open disk %s: %s%s", file->path, strerror(errno),
				 errno == EBUSY ? "; it is mounted or used by another: unmount it"
				 : errno == ENOENT ? "; give a file or block device that is there"
						   : "");
	if (fstat(file->fd, &status) < 0)
		return nvju_fail(-errno, "cannot open disk %s: %s", file->path, strerror(errno));
	if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
		return no_disk(file);
	return S_ISREG(status.st_mode) && !(flags & NVJU_DISK_READ_ONLY) ? lock(file) : 0;
}

int nvju_disk_open(struct nvju_disk **disk, const char *path, unsigned flags)
{
	struct file_disk *file;
	size_t bytes;
	int error;

	*disk = NULL;
	if (!path)
		return nvju_fail(NVJ_EINVAL, "cannot open a disk: its path is NULL");
	bytes = strlen(path) + 1;
	file = calloc(1, sizeof(*file) + bytes);
	if (!file)
		return nvju_fail(NVJ_ENOMEM, "cannot open disk %s: no memory", path);
	memcpy(file->path, path, bytes);
	file->disk.kind = &file_kind;
	file->fd = -1;
	file->opener = getpid();
	error = open_file(file, flags);
	if (error) {
		file_close(&file->disk);
		return error;
	}
	file->uring = !(flags & NVJU_DISK_NO_URING) && nvju_queue_uring_works();
	snprintf(file->disk.how, sizeof(file->disk.how), "%s, %s",
		 file->uring                  ? "io_uring"
		 : flags & NVJU_DISK_NO_URING ? "pwrite"
					      : "pwrite (io_uring is refused here)",
		 file->direct                 ? "O_DIRECT"
		 : flags & NVJU_DISK_BUFFERED ? "page cache"
					      : "page cache (no O_DIRECT here)");
	*disk = &file->disk;
	return 0;
}
