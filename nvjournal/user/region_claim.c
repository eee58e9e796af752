/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slice of a block device, for this process alone.
 *
 * If ext4nvj or jfsnvj is loaded, it manages the slices. It may have opened the
 * device exclusively, for mounts of other slices, and it accepts claims of
 * programs (kernel/platform/claims.c). A claim lasts as long as its file is open,
 * so it ends with the process. Otherwise the whole device is opened exclusively.
 * The same happens if the module cannot use the device (no DAX), or if this
 * process may not claim: then either nothing of the device is mounted, or the open
 * fails.
 *
 * A reader claims nothing, so it blocks no mount and no other process.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "error.h"
#include "region.h"

/* Of each module: the slices in use, and where to claim one. */
static const char *const regions_of[] = {"/proc/fs/ext4nvj/regions", "/proc/fs/jfsnvj/regions"};

static bool has_device(const char *regions, dev_t device)
{
	FILE *file = fopen(regions, "re");
	char line[256];
	bool has = false;

	while (file && !has && fgets(line, sizeof(line), file)) {
		unsigned number[2];

		has = sscanf(line, "%*s %u:%u", &number[0], &number[1]) == 2 &&
		      makedev(number[0], number[1]) == device;
	}
	if (file)
		fclose(file);
	return has;
}

/* The file of the module that has the device open, else of any that is loaded. */
static const char *regions_for(dev_t device)
{
	const size_t count = sizeof(regions_of) / sizeof(regions_of[0]);

	for (size_t i = 0; i < count; i++)
		if (has_device(regions_of[i], device))
			return regions_of[i];
	for (size_t i = 0; i + 1 < count; i++)
		if (!access(regions_of[i], F_OK))
			return regions_of[i];
	return regions_of[count - 1];
}

/*
 * Finds the user of bytes in that range, as the module reports it; "" if there is
 * none. False: no module reports it.
 */
static bool find_user(dev_t device, uint64_t offset, uint64_t size, char *user, size_t bytes)
{
	char line[256];
	FILE *file = fopen(regions_for(device), "re");

	user[0] = 0;
	while (file && !user[0] && fgets(line, sizeof(line), file)) {
		uint64_t other, other_size;
		unsigned number[2];
		int at = 0;

		line[strcspn(line, "\n")] = 0;
		if (sscanf(line, "%*s %u:%u %" SCNu64 " %" SCNu64 " %n", &number[0], &number[1],
			   &other, &other_size, &at) != 4 ||
		    !at || makedev(number[0], number[1]) != device)
			continue;
		if (offset < other + other_size && other < offset + size)
			snprintf(user, bytes, "%s (bytes %" PRIu64 " to %" PRIu64 ")", line + at,
				 other, other + other_size - 1);
	}
	if (file)
		fclose(file);
	return file;
}

static int busy(const char *path, dev_t device, uint64_t offset, uint64_t size)
{
	char user[200];

	(void)find_user(device, offset, size, user, sizeof(user));
	if (user[0])
		return nvju_fail(
			-EBUSY,
			"cannot open region %s, bytes %" PRIu64 " to %" PRIu64
			": it is in use: by %s; end that, or take another slice (--offset, "
			"--size)",
			path, offset, offset + size - 1, user);
	return nvju_fail(-EBUSY,
			 "cannot open region %s: %s; it is in use: by a mount, whose journal or "
			 "device it is, or by a process (see fuser)",
			 path, strerror(EBUSY));
}

/* 1: the range is claimed. 0: no module decides. Or a negative error. */
static int claim(struct nvju_region *region, const char *path, dev_t device, uint64_t offset,
		 uint64_t size)
{
	char text[4096 + 64];
	int length = snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " %s", offset, size, path);
	ssize_t written;

	if (length >= (int)sizeof(text))
		return 0;
	region->claim_fd = open(regions_for(device), O_RDWR | O_CLOEXEC);
	if (region->claim_fd < 0)
		return 0;
	written = write(region->claim_fd, text, (size_t)length);
	if (written == length)
		return 1;
	if (written < 0 && errno == EBUSY)
		return busy(path, device, offset, size);
	close(region->claim_fd);
	region->claim_fd = -1;
	return 0;
}

int nvju_claim(struct nvju_region *region, const char *path, dev_t device, uint64_t offset,
	       uint64_t size)
{
	int mode = region->read_only ? O_RDONLY : O_RDWR;
	char user[200];
	int probe, result;

	/*
	 * A reader does not block others. It checks whether the range is in
	 * use, and claims nothing.
	 */
	if (region->read_only && find_user(device, offset, size, user, sizeof(user)))
		return user[0] ? busy(path, device, offset, size) : 0;
	result = region->read_only ? 0 : claim(region, path, device, offset, size);
	if (result)
		return result < 0 ? result : 0;
	probe = open(path, mode | O_EXCL | O_CLOEXEC);
	if (probe < 0 && errno == EBUSY)
		return busy(path, device, offset, size);
	if (probe < 0)
		return nvju_fail(-errno, "cannot open region %s: %s", path, strerror(errno));
	if (region->read_only)
		close(probe);
	else
		region->claim_fd = probe;
	return 0;
}
