/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of files and devices: the size, the lock, the mapping. With MAP_SYNC,
 * the processor's own instructions make stores persistent. Without it, the
 * kernel must be asked to write the pages (region_file.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "error.h"
#include "region.h"
#include "unlock.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif

/* The size of a character device (device DAX) is available only in sysfs. */
static int dax_size(const struct stat *status, uint64_t *size)
{
	char path[96];
	FILE *file;
	int n;

	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(status->st_rdev),
		 minor(status->st_rdev));
	file = fopen(path, "re");
	if (!file)
		return -errno;
	n = fscanf(file, "%" SCNu64, size);
	fclose(file);
	return n == 1 ? 0 : -EINVAL;
}

static int size_of(int fd, const char *path, const struct stat *status, uint64_t *size)
{
	int error;

	if (S_ISREG(status->st_mode)) {
		*size = (uint64_t)status->st_size;
		return 0;
	}
	if (S_ISBLK(status->st_mode)) {
		if (ioctl(fd, BLKGETSIZE64, size) == 0)
			return 0;
		return nvju_fail(-errno, "cannot tell the size of %s: %s", path, strerror(errno));
	}
	if (S_ISCHR(status->st_mode)) {
		error = dax_size(status, size);
		if (error == 0)
			return 0;
		return nvju_fail(error,
				 "cannot open region %s: it is a character device but no DAX "
				 "device; give a file, a block device or /dev/daxN.M",
				 path);
	}
	return nvju_fail(-EINVAL,
			 "cannot open region %s: it is neither a file nor a device; give one",
			 path);
}

/*
 * Takes an open-file-description lock of the mapped bytes. Two slices of one
 * device may be open at the same time, but one slice only once, also within
 * this process.
 */
static int lock(int fd, const char *path, uint64_t offset, uint64_t size, bool read_only)
{
	struct flock range = {
		.l_type = read_only ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)offset,
		.l_len = (off_t)size,
	};

	if (fcntl(fd, F_OFD_SETLK, &range) == 0)
		return 0;
	if (errno == EAGAIN || errno == EACCES)
		return nvju_fail(-EBUSY,
				 "cannot open region %s: it is in use by a process (see fuser %s, "
				 "or lsof); end it, or take another region",
				 path, path);
	return nvju_fail(-errno, "cannot lock region %s: %s", path, strerror(errno));
}

/*
 * Extends a file and allocates its blocks. A hole might find no free block when
 * it is written.
 */
static int extend(int fd, const char *path, uint64_t from, uint64_t end)
{
	int error = posix_fallocate(fd, (off_t)from, (off_t)(end - from));

	if (!error && fsync(fd) == 0)
		return 0;
	if (!error)
		error = errno;
	/* On a full disk it has what was free. If this fails, it keeps it. */
	(void)!ftruncate(fd, (off_t)from);
	return nvju_fail(-error, "cannot make region %s %" PRIu64 " bytes long: %s", path, end,
			 strerror(error));
}

/*
 * Checks that commits survive a power failure. This runs before a file is
 * extended. Only a reader, or NVJ_ALLOW_VOLATILE, can do without.
 */
static int check_durable(const struct nvju_region *region, const char *path,
			 const struct stat *status, unsigned flags)
{
	void *base;

	if (region->read_only || flags & NVJ_ALLOW_VOLATILE)
		return 0;
	if (S_ISBLK(status->st_mode) && nvju_is_pmem_block(status->st_rdev))
		return 0;
	if (S_ISCHR(status->st_mode)) {
		/* The mapping of device DAX checks offset and size itself. */
		if (!nvju_needs_host_flush(status->st_rdev))
			return 0;
		return nvju_fail(
			-EOPNOTSUPP,
			"cannot open region %s: it is virtio-pmem, memory of the host that "
			"only the host can flush; take an NVDIMM, or allow it for "
			"development: --allow-volatile (in C, NVJ_ALLOW_VOLATILE)",
			path);
	}
	base = mmap(NULL, NVJ_BLOCK_BYTES, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, region->fd,
		    0);
	if (base != MAP_FAILED) {
		munmap(base, NVJ_BLOCK_BYTES);
		return 0;
	}
	return nvju_fail(-EOPNOTSUPP,
			 "cannot open region %s: it is not persistent memory that can be mapped "
			 "with MAP_SYNC; give /dev/daxN.M, a file on a file system that is mounted "
			 "with dax, or allow it for development: --allow-volatile "
			 "(in C, NVJ_ALLOW_VOLATILE)",
			 path);
}

static int map(struct nvju_region *region, const char *path, uint64_t offset, uint64_t size,
	       const struct stat *status)
{
	int protection = region->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	void *base;

	base = mmap(NULL, size, protection, MAP_SHARED_VALIDATE | MAP_SYNC, region->fd,
		    (off_t)offset);
	region->region.persistence = nvj_persistence(NULL);
	if (base != MAP_FAILED && !region->region.persistence && !region->read_only) {
		(void)munmap(base, size);
		return nvju_fail(NVJ_EINVAL,
				 "region %s is in persistent memory, and this processor has no "
				 "instruction that writes a line of its caches to it (arm64 has it "
				 "since ARMv8.2: dc cvap)",
				 path);
	}
	if (base != MAP_FAILED) {
		snprintf(region->how, sizeof(region->how), "DAX (MAP_SYNC), %s",
			 region->region.persistence ? region->region.persistence->name
						    : "no flush");
	} else {
		base = mmap(NULL, size, protection, MAP_SHARED, region->fd, (off_t)offset);
		if (base == MAP_FAILED)
			return nvju_fail(-errno,
					 "cannot map %" PRIu64 " bytes at %" PRIu64
					 " of region %s: %s%s",
					 size, offset, path, strerror(errno),
					 S_ISCHR(status->st_mode)
						 ? "; offset and size must be multiples of the "
						   "device's alignment, mostly 2 MiB"
						 : "");
		if (region->device)
			(void)madvise(base, size, MADV_RANDOM);
		nvju_region_use_msync(region);
		snprintf(region->how, sizeof(region->how), "plain %s, msync",
			 S_ISBLK(status->st_mode) ? "block device" : "file");
	}
	/* Then the engine refuses to write, where a store would end the program. */
	if (region->read_only)
		region->region.persistence = NULL;
	region->region.base = base;
	region->region.size_bytes = size;
	nvju_catch_bus_errors(region);
	return 0;
}

/*
 * The page cache of a block device does not contain what the kernel wrote
 * through DAX. So the page cache is emptied, here and at the end. There is no
 * read-ahead, because the neighbouring pages may belong to another slice, which
 * changes.
 */
static int enter_device(struct nvju_region *region, const char *path, dev_t device, uint64_t offset,
			uint64_t size, unsigned flags)
{
	int error = flags & NVJU_UNLOCKED ? 0 : nvju_claim(region, path, device, offset, size);

	if (error)
		return error;
	region->device = true;
	/* A process without the permission reads what is in the page cache. */
	(void)ioctl(region->fd, BLKFLSBUF, 0);
	return 0;
}

bool nvju_same_file(const char *region, const char *disk)
{
	struct stat one, other;

	return !strcmp(region, disk) || (!stat(region, &one) && !stat(disk, &other) &&
					 one.st_dev == other.st_dev && one.st_ino == other.st_ino);
}

void nvju_note_file(struct nvju_file_before *before, const char *path)
{
	memset(before, 0, sizeof(*before));
	before->existed = !stat(path, &before->status) || errno != ENOENT;
}

void nvju_restore_file(const struct nvju_file_before *before, const char *path, uint64_t end)
{
	struct stat now;

	/* Another file that has the name now stays, and what was added after the region. */
	if (stat(path, &now) || !S_ISREG(now.st_mode) || (uint64_t)now.st_size != end)
		return;
	if (!before->existed)
		(void)unlink(path);
	else if (now.st_dev == before->status.st_dev && now.st_ino == before->status.st_ino &&
		 now.st_size > before->status.st_size)
		(void)!truncate(path, before->status.st_size);
}

static int open_and_map(struct nvju_region *region, const char *path, uint64_t offset,
			uint64_t size, unsigned flags)
{
	int mode = flags & NVJU_READ_ONLY ? O_RDONLY : O_RDWR;
	uint64_t whole = 0;
	struct stat status;
	bool made = false;
	int error;

	/* To the end of a file that is not there there is nothing. */
	if (flags & NVJU_CREATE && !(flags & NVJU_READ_ONLY) && size)
		mode |= O_CREAT;
	/* An open of a pipe would wait for a writer. */
	if (stat(path, &status) == 0 && S_ISFIFO(status.st_mode))
		return size_of(-1, path, &status, &whole);
	made = mode & O_CREAT && access(path, F_OK) < 0 && errno == ENOENT;
	region->fd = open(path, mode | O_CLOEXEC, 0600);
	if (region->fd < 0)
		return nvju_fail(-errno, "cannot open region %s: %s%s", path, strerror(errno),
				 errno == ENOENT && flags & NVJU_CREATE && !size
					 ? "; give a size to make it"
					 : "");
	if (fstat(region->fd, &status) < 0)
		return nvju_fail(-errno, "cannot open region %s: %s", path, strerror(errno));
	error = size_of(region->fd, path, &status, &whole);
	if (error)
		return error;
	if (size == 0 && whole > offset)
		size = (whole - offset) & ~UINT64_C(4095);
	if (size == 0)
		return nvju_fail(-EINVAL,
				 "cannot open region %s: it has %" PRIu64 " bytes, and so no "
				 "block of 4096 bytes at offset %" PRIu64 "%s",
				 path, whole, offset,
				 flags & NVJU_READ_ONLY ? "" : "; give a size to extend it");
	if (S_ISBLK(status.st_mode)) {
		error = enter_device(region, path, status.st_rdev, offset, size, flags);
		if (error)
			return error;
	}
	if (!(flags & NVJU_UNLOCKED)) {
		error = lock(region->fd, path, offset, size, region->read_only);
		if (error)
			return error;
	}
	error = check_durable(region, path, &status, flags);
	if (error) {
		if (made)
			unlink(path);
		return error;
	}
	if (offset + size > whole) {
		if (!S_ISREG(status.st_mode) || !(mode & O_CREAT))
			return nvju_fail(-EINVAL,
					 "cannot open region %s: %" PRIu64 " bytes at offset "
					 "%" PRIu64 " are wanted, and it has %" PRIu64 " in all",
					 path, size, offset, whole);
		error = extend(region->fd, path, whole, offset + size);
		if (error) {
			if (made)
				unlink(path);
			return error;
		}
	}
	return map(region, path, offset, size, &status);
}

int nvju_region_open(struct nvju_region **result, const char *path, uint64_t offset,
		     uint64_t size_bytes, unsigned flags)
{
	struct nvju_region *region;
	int error;

	*result = NULL;
	if (!path)
		return nvju_fail(NVJ_EINVAL, "cannot open a region: its path is NULL");
	if (offset % NVJ_BLOCK_BYTES || size_bytes % NVJ_BLOCK_BYTES || size_bytes > INT64_MAX ||
	    offset > INT64_MAX - size_bytes)
		return nvju_fail(NVJ_EINVAL,
				 "cannot open region %s: offset %" PRIu64 " and size %" PRIu64
				 " must be multiples of 4096, below 2^63",
				 path, offset, size_bytes);
	if (flags & NVJU_UNLOCKED && !(flags & NVJU_READ_ONLY))
		return nvju_fail(NVJ_EINVAL,
				 "cannot open region %s: only to read may it be open without its "
				 "lock",
				 path);
	region = calloc(1, sizeof(*region));
	if (!region)
		return nvju_fail(NVJ_ENOMEM, "cannot open region %s: no memory", path);
	region->fd = region->claim_fd = -1;
	region->opener = getpid();
	region->read_only = flags & NVJU_READ_ONLY;
	error = open_and_map(region, path, offset, size_bytes, flags);
	if (error) {
		nvju_region_close(region);
		return error;
	}
	*result = region;
	return 0;
}

const struct nvj_region *nvju_region(const struct nvju_region *region)
{
	return &region->region;
}

const char *nvju_region_how(const struct nvju_region *region)
{
	return region->how;
}

void nvju_region_close(struct nvju_region *region)
{
	if (!region)
		return;
	nvju_release_bus_errors(region);
	if (region->region.base)
		munmap(region->region.base, region->region.size_bytes);
	if (region->device) {
		/*
		 * Each fence has written its pages, so a failure here does not
		 * matter.
		 */
		(void)fsync(region->fd);
		(void)ioctl(region->fd, BLKFLSBUF, 0);
	}
	if (region->fd >= 0) {
		nvju_unlock(region->fd, region->opener);
		close(region->fd);
	}
	/* Released last: then others may use the range. */
	if (region->claim_fd >= 0)
		close(region->claim_fd);
	free(region);
}
