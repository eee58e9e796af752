/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sysfs says about the memory of a device. Block devices of persistent
 * memory are those of the kernel's bus "nd" (in raw mode, too), and all devices
 * with DAX, such as device mapper on them. The memory of virtio-pmem is in the
 * page cache of the host: its bus has that provider
 * (drivers/nvdimm/virtio_pmem.c of Linux).
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "region.h"

/* Says whether the first line of a file in sysfs is that text. */
static bool says(const char *directory, const char *name, const char *text)
{
	char path[PATH_MAX + 64], line[64] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = 0;
	fclose(file);
	line[strcspn(line, "\n")] = 0;
	return !strcmp(line, text);
}

static bool on_bus(const char *directory, const char *bus)
{
	char path[PATH_MAX + 64], target[PATH_MAX];
	ssize_t length;

	snprintf(path, sizeof(path), "%s/device/subsystem", directory);
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = 0;
	return strrchr(target, '/') && !strcmp(strrchr(target, '/') + 1, bus);
}

/* The directory of the device below /sys/devices, without symbolic links. */
static bool directory_of(const char *kind, dev_t device, char directory[PATH_MAX])
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/dev/%s/%u:%u", kind, major(device), minor(device));
	return realpath(path, directory) != NULL;
}

bool nvju_is_pmem_block(dev_t device)
{
	char directory[PATH_MAX];

	if (!directory_of("block", device, directory))
		return false;
	/* The directory of a partition is in that of its disk. */
	for (int level = 0; level < 2; level++) {
		char *end = strrchr(directory, '/');

		if (on_bus(directory, "nd") || says(directory, "queue/dax", "1"))
			return true;
		if (!end)
			break;
		*end = 0;
	}
	return false;
}

bool nvju_needs_host_flush(dev_t device)
{
	char directory[PATH_MAX], *end;

	if (!directory_of("char", device, directory))
		return false;
	for (; (end = strrchr(directory, '/')) != NULL; *end = 0)
		if (says(directory, "provider", "virtio-pmem"))
			return true;
	return false;
}
