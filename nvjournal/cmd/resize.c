/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvj resize: grows an ext4 that is mounted. resize2fs does so by the same call of
 * the kernel's, but opens the disk first, and refuses one that ext4nvj has marked.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "nvj.h"

/* From fs/ext4/ext4.h of Linux: resize to a number of blocks. */
#define RESIZE_FS _IOW('f', 16, uint64_t)
/* ext4's number of the root directory's inode. */
#define ROOT_INODE 2u
/* The unit of sizes in /sys. */
#define SECTOR_BYTES 512u

/* A mounted ext4 and its device. */
struct mounted {
	const char *directory;
	int fd; /* of the directory */
	char device[NAME_MAX + 8];
	uint64_t device_bytes;
	struct ext4_size size;
};

/* Reads the line of a file in the device's directory in /sys that starts with
 * a text. */
static bool read_sys(dev_t device, const char *file, const char *begins, char *rest, size_t bytes)
{
	char path[64], line[NAME_MAX + 16];
	bool found = false;
	FILE *from;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device), file);
	from = fopen(path, "re");
	while (from && !found && fgets(line, sizeof(line), from)) {
		line[strcspn(line, "\n")] = '\0';
		found = !strncmp(line, begins, strlen(begins));
	}
	if (from)
		fclose(from);
	return found && snprintf(rest, bytes, "%s", line + strlen(begins)) < (int)bytes;
}

/* Finds its device. Returns 0, or -1 after an error message. */
static int find_device(struct mounted *mounted, dev_t number)
{
	char name[NAME_MAX], sectors[24];

	if (!read_sys(number, "uevent", "DEVNAME=", name, sizeof(name)) ||
	    !read_sys(number, "size", "", sectors, sizeof(sectors)) ||
	    sscanf(sectors, "%" SCNu64, &mounted->device_bytes) != 1) {
		complain("cannot resize %s: /sys/dev/block/%u:%u does not say what device it is on",
			 mounted->directory, major(number), minor(number));
		return -1;
	}
	mounted->device_bytes *= SECTOR_BYTES;
	snprintf(mounted->device, sizeof(mounted->device), "/dev/%s", name);
	return ext4_read_size(mounted->device, &mounted->size);
}

/* Returns 0 if directory is the mount point of an ext4, with mounted->fd open; -1 after
 * an error message. */
static int find(struct mounted *mounted, const char *directory)
{
	struct statfs system;
	struct stat status;

	mounted->directory = directory;
	mounted->fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mounted->fd < 0 || fstat(mounted->fd, &status) || fstatfs(mounted->fd, &system)) {
		complain("cannot resize %s: %s; give the directory where the disk is mounted",
			 directory, strerror(errno));
	} else if (system.f_type != EXT4_SUPER_MAGIC) {
		complain("cannot resize %s: its file system is not ext4nvj, nor ext4", directory);
	} else if (status.st_ino != ROOT_INODE) {
		complain("cannot resize %s: it is not a mount point; give the directory "
			 "where its file system is mounted",
			 directory);
	} else if (!find_device(mounted, status.st_dev)) {
		return 0;
	}
	if (mounted->fd >= 0)
		close(mounted->fd);
	return -1;
}

/* Prints why the kernel has refused; the kernel log has the details. */
static void complain_of_refusal(const char *directory, int error)
{
	switch (error) {
	case EPERM:
		complain("cannot resize %s: not permitted: only root may (CAP_SYS_RESOURCE), and "
			 "only if the file system has no errors: else unmount it and run e2fsck",
			 directory);
		break;
	case EROFS:
		complain("cannot resize %s: it is mounted read-only: mount -o remount,rw %s",
			 directory, directory);
		break;
	case EBUSY:
		complain("cannot resize %s: another resize of it is in progress", directory);
		break;
	default:
		complain("cannot resize %s: %s; see also dmesg", directory, strerror(error));
	}
}

static void print_result(const struct mounted *mounted, uint64_t before, uint64_t after,
			 bool json_wanted)
{
	if (json_wanted) {
		struct json json = {.to = stdout};

		json_begin(&json, NULL, '{');
		json_text(&json, "directory", mounted->directory);
		json_text(&json, "device", mounted->device);
		json_number(&json, "device_bytes", mounted->device_bytes);
		json_number(&json, "before_bytes", before);
		json_number(&json, "after_bytes", after);
		json_bool(&json, "grown", after > before);
		json_end(&json, '}');
	} else if (after > before) {
		printf("%s: grown from %" PRIu64 " to %" PRIu64 " bytes\n", mounted->directory,
		       before, after);
	} else {
		printf("%s: it has %" PRIu64 " bytes already\n", mounted->directory, before);
	}
}

static uint64_t bytes_of(const struct ext4_size *size)
{
	return size->blocks * size->block_bytes;
}

/* bytes is the new size; 0 means that of the device. */
static int grow(struct mounted *mounted, uint64_t bytes, bool json_wanted)
{
	const uint64_t before = bytes_of(&mounted->size);
	uint64_t blocks;

	if (!bytes)
		bytes = mounted->device_bytes;
	blocks = bytes / mounted->size.block_bytes;
	if (blocks < mounted->size.blocks) {
		complain("cannot resize %s to %" PRIu64 " bytes: it has %" PRIu64
			 ", and a mounted file system can only grow",
			 mounted->directory, bytes, before);
		return EXIT_DAMAGED;
	}
	if (bytes > mounted->device_bytes) {
		complain("cannot resize %s to %" PRIu64 " bytes: %s has %" PRIu64
			 "; make the device larger first",
			 mounted->directory, bytes, mounted->device, mounted->device_bytes);
		return EXIT_DAMAGED;
	}
	if (blocks > mounted->size.blocks && ioctl(mounted->fd, RESIZE_FS, &blocks)) {
		complain_of_refusal(mounted->directory, errno);
		return EXIT_DAMAGED;
	}
	/* A last group that is too small for what it needs itself is left out. */
	if (ext4_read_size(mounted->device, &mounted->size))
		return EXIT_DAMAGED;
	print_result(mounted, before, bytes_of(&mounted->size), json_wanted);
	return EXIT_SOUND;
}

int command_resize(int count, char **words)
{
	uint64_t bytes = 0;
	bool json_wanted = false, given = false;
	const struct argument arguments[] = {
		{"--size", ARGUMENT_SIZE, &bytes, &given},
		{"--json", ARGUMENT_FLAG, &json_wanted, NULL},
		{.value = "DIR"},
	};
	struct mounted mounted;
	const char *directory;
	int result;

	result = read_arguments("resize", count, words, arguments, &directory);
	if (result)
		return result > 0 ? EXIT_SOUND : EXIT_UNUSABLE;
	if (given && !bytes) {
		complain("resize: --size 0 is invalid; omit it to use the whole device");
		return EXIT_UNUSABLE;
	}
	if (find(&mounted, directory))
		return EXIT_UNUSABLE;
	result = grow(&mounted, bytes, json_wanted);
	close(mounted.fd);
	return result;
}
