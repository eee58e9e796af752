/* SPDX-License-Identifier: Apache-2.0 */
/* What disks share: disk.c passes calls on and counts, disk_file.c and disk_memory.c do them. */
#ifndef NVJU_DISK_H
#define NVJU_DISK_H

#include "nvjournal_user.h"

struct nvju_disk_kind {
	int (*read)(struct nvju_disk *disk, uint64_t block, void *image);
	int (*start_write)(struct nvju_disk *disk, unsigned queue, struct nvj_write *write);
	struct nvj_write *(*finish_write)(struct nvju_disk *disk, unsigned queue);
	int (*flush)(struct nvju_disk *disk);
	/* Nothing is in flight any more but what finish_write would return. */
	void (*close)(struct nvju_disk *disk);
};

/* The first member of each kind's own struct. */
struct nvju_disk {
	const struct nvju_disk_kind *kind;
	struct nvju_disk_counts counts; /* atomic */
	char how[96];
};

/* disk_queue.c: writes of one queue, by io_uring or one after the other. */
struct nvju_queue;

/* NULL: no memory. */
struct nvju_queue *nvju_queue_new(int fd, const char *path, bool direct, bool uring);
int nvju_queue_start(struct nvju_queue *queue, struct nvj_write *write);
struct nvj_write *nvju_queue_finish(struct nvju_queue *queue);
void nvju_queue_free(struct nvju_queue *queue);
/* Whether this process may use io_uring at all: containers often may not. */
bool nvju_queue_uring_works(void);

#endif
