/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common parts of disks: disk.c counts and calls the functions of disk_file.c
 * or disk_memory.c.
 */
#ifndef NVJU_DISK_H
#define NVJU_DISK_H

#include "nvjournal_user.h"

struct nvju_disk_kind {
	int (*read)(struct nvju_disk *disk, uint64_t block, void *image);
	int (*start_write)(struct nvju_disk *disk, unsigned queue, struct nvj_write *write);
	struct nvj_write *(*finish_write)(struct nvju_disk *disk, unsigned queue);
	int (*flush)(struct nvju_disk *disk);
	/*
	 * No write is in flight any more. Some may have ended without a
	 * finish_write.
	 */
	void (*close)(struct nvju_disk *disk);
};

/* The first member of the structure of each kind of disk. */
struct nvju_disk {
	const struct nvju_disk_kind *kind;
	struct nvju_disk_counts counts; /* atomic */
	/* See nvju_disk_failure. */
	int failure_state; /* atomic: disk.c */
	char failure[256];
	char how[96];
};

/*
 * disk.c: why the first write, flush, or read of the journal failed, as nvju_error() said
 * in the thread that met it; "" if none did. A read of the program is none of these.
 */
const char *nvju_disk_failure(const struct nvju_disk *disk);
/* Keeps what nvju_error() says now, if nothing is kept yet. */
void nvju_disk_keep_failure(struct nvju_disk *disk);

/*
 * disk_queue.c: the writes of one queue, with io_uring or one after the other.
 */
struct nvju_queue;

/* NULL: no memory. */
struct nvju_queue *nvju_queue_new(int fd, const char *path, bool direct, bool uring);
int nvju_queue_start(struct nvju_queue *queue, struct nvj_write *write);
struct nvj_write *nvju_queue_finish(struct nvju_queue *queue);
void nvju_queue_free(struct nvju_queue *queue);
/*
 * Says whether this process may use io_uring. In containers it often may not.
 */
bool nvju_queue_uring_works(void);

#endif
