/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of all disks. Limits are checked and operations are counted
 * here.
 */
#include <stddef.h>
#include <stdio.h>

#include "disk.h"
#include "error.h"

static void count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

enum { NO_FAILURE, STORING_FAILURE, FAILURE_STORED };

/* The kind of the disk has just stored the text for this thread. */
void nvju_disk_keep_failure(struct nvju_disk *disk)
{
	int none = NO_FAILURE;

	if (!__atomic_compare_exchange_n(&disk->failure_state, &none, STORING_FAILURE, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	snprintf(disk->failure, sizeof(disk->failure), "%s", nvju_error());
	__atomic_store_n(&disk->failure_state, FAILURE_STORED, __ATOMIC_RELEASE);
}

const char *nvju_disk_failure(const struct nvju_disk *disk)
{
	int state = __atomic_load_n(&disk->failure_state, __ATOMIC_ACQUIRE);

	return state == FAILURE_STORED ? disk->failure : "";
}

static int ended(struct nvju_disk *disk, uint64_t *counter, int error)
{
	count(counter);
	if (error)
		count(&disk->counts.errors);
	if (error && counter != &disk->counts.reads)
		nvju_disk_keep_failure(disk);
	return error;
}

int nvju_disk_read(struct nvju_disk *disk, uint64_t block, void *image)
{
	return ended(disk, &disk->counts.reads, disk->kind->read(disk, block, image));
}

int nvju_disk_start_write(struct nvju_disk *disk, unsigned queue, struct nvj_write *write)
{
	int error;

	if (queue >= NVJ_MAX_QUEUES)
		return nvju_fail(NVJ_EIO, "cannot write block %llu: there is no queue %u",
				 (unsigned long long)write->block, queue);
	write->error = 0;
	error = disk->kind->start_write(disk, queue, write);
	return error ? ended(disk, &disk->counts.writes, error) : 0;
}

struct nvj_write *nvju_disk_finish_write(struct nvju_disk *disk, unsigned queue)
{
	struct nvj_write *write;

	write = queue < NVJ_MAX_QUEUES ? disk->kind->finish_write(disk, queue) : NULL;
	if (write)
		ended(disk, &disk->counts.writes, write->error);
	return write;
}

int nvju_disk_flush(struct nvju_disk *disk)
{
	return ended(disk, &disk->counts.flushes, disk->kind->flush(disk));
}

struct nvju_disk_counts nvju_disk_counts(const struct nvju_disk *disk)
{
	return (struct nvju_disk_counts){
		.reads = __atomic_load_n(&disk->counts.reads, __ATOMIC_RELAXED),
		.writes = __atomic_load_n(&disk->counts.writes, __ATOMIC_RELAXED),
		.flushes = __atomic_load_n(&disk->counts.flushes, __ATOMIC_RELAXED),
		.errors = __atomic_load_n(&disk->counts.errors, __ATOMIC_RELAXED),
	};
}

const char *nvju_disk_how(const struct nvju_disk *disk)
{
	return disk->how;
}

void nvju_disk_close(struct nvju_disk *disk)
{
	if (disk)
		disk->kind->close(disk);
}
