/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue of writes: an io_uring with at most NVJ_QUEUE_DEPTH writes in flight.
 * Where io_uring is refused (in many containers), pwrite, one write after the
 * other. One thread at a time uses a queue.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk.h"
#include "error.h"

/* At most so many writes are passed to the kernel in one call. */
#define BATCH 8u

struct slot {
	struct nvj_write *write; /* NULL: free */
	const uint8_t *from;     /* the image, or its copy at a multiple of 4096 for O_DIRECT */
	unsigned done;           /* bytes written: a write may be short */
};

struct nvju_queue {
	int fd;
	const char *path;
	bool direct, uring;
	struct io_uring ring;
	unsigned unsubmitted;
	struct slot slots[NVJ_QUEUE_DEPTH];
	unsigned used;
	/*
	 * Without io_uring: the writes that have ended. The oldest one is at
	 * first.
	 */
	struct nvj_write *ended[NVJ_QUEUE_DEPTH];
	unsigned first;
	uint8_t *copies; /* NVJ_QUEUE_DEPTH blocks, if direct */
};

bool nvju_queue_uring_works(void)
{
	struct io_uring ring;

	if (io_uring_queue_init(2, &ring, 0) < 0)
		return false;
	io_uring_queue_exit(&ring);
	return true;
}

struct nvju_queue *nvju_queue_new(int fd, const char *path, bool direct, bool uring)
{
	struct nvju_queue *queue = calloc(1, sizeof(*queue));

	if (!queue)
		return NULL;
	queue->fd = fd;
	queue->path = path;
	queue->direct = direct;
	if (direct) {
		queue->copies =
			aligned_alloc(NVJ_BLOCK_BYTES, (size_t)NVJ_QUEUE_DEPTH * NVJ_BLOCK_BYTES);
		if (!queue->copies) {
			free(queue);
			return NULL;
		}
	}
	queue->uring = uring && io_uring_queue_init(NVJ_QUEUE_DEPTH, &queue->ring, 0) == 0;
	return queue;
}

static int write_error(const struct nvju_queue *queue, const struct nvj_write *write, int error)
{
	return nvju_fail(NVJ_EIO, "cannot write block %llu of disk %s: %s",
			 (unsigned long long)write->block, queue->path, strerror(error));
}

/* --- One after the other -------------------------------------------------- */

static int write_now(struct nvju_queue *queue, struct slot *slot)
{
	while (slot->done < NVJ_BLOCK_BYTES) {
		ssize_t n = pwrite(queue->fd, slot->from + slot->done, NVJ_BLOCK_BYTES - slot->done,
				   (off_t)(slot->write->block * NVJ_BLOCK_BYTES + slot->done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return write_error(queue, slot->write, n < 0 ? errno : ENOSPC);
		/* The rest of a short direct write is not aligned any more. */
		if (queue->direct && n < (ssize_t)NVJ_BLOCK_BYTES)
			return write_error(queue, slot->write, EIO);
		slot->done += (unsigned)n;
	}
	return 0;
}

/* --- io_uring ------------------------------------------------------------- */

static int submit(struct nvju_queue *queue, unsigned wait)
{
	int n;

	do
		n = wait ? io_uring_submit_and_wait(&queue->ring, wait)
			 : io_uring_submit(&queue->ring);
	while (n == -EINTR || n == -EAGAIN);
	if (n > 0)
		queue->unsubmitted -=
			(unsigned)n < queue->unsubmitted ? (unsigned)n : queue->unsubmitted;
	return n;
}

static bool prepare(struct nvju_queue *queue, struct slot *slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&queue->ring);

	if (!sqe)
		return false;
	io_uring_prep_write(sqe, queue->fd, slot->from + slot->done, NVJ_BLOCK_BYTES - slot->done,
			    slot->write->block * NVJ_BLOCK_BYTES + slot->done);
	io_uring_sqe_set_data(sqe, slot);
	queue->unsubmitted++;
	return true;
}

/* True: the write of the slot has ended. */
static bool complete(struct nvju_queue *queue, struct slot *slot, int result)
{
	if (result == -EINTR || result == -EAGAIN)
		result = 0;
	else if (result == 0)
		result = -ENOSPC;
	if (result < 0) {
		slot->write->error = write_error(queue, slot->write, -result);
		return true;
	}
	if (queue->direct && result > 0 && result < (int)NVJ_BLOCK_BYTES) {
		slot->write->error = write_error(queue, slot->write, EIO);
		return true;
	}
	slot->done += (unsigned)result;
	if (slot->done == NVJ_BLOCK_BYTES)
		return true;
	if (prepare(queue, slot))
		return false;
	slot->write->error = write_error(queue, slot->write, EBUSY);
	return true;
}

static struct nvj_write *release(struct nvju_queue *queue, struct slot *slot)
{
	struct nvj_write *write = slot->write;

	slot->write = NULL;
	queue->used--;
	return write;
}

static struct nvj_write *finish_uring(struct nvju_queue *queue)
{
	for (;;) {
		struct io_uring_cqe *cqe;
		struct slot *slot;
		int result;

		if (io_uring_peek_cqe(&queue->ring, &cqe) != 0) {
			result = submit(queue, 1);
			if (result < 0)
				break;
			continue;
		}
		slot = io_uring_cqe_get_data(cqe);
		result = cqe->res;
		io_uring_cqe_seen(&queue->ring, cqe);
		if (complete(queue, slot, result))
			return release(queue, slot);
	}
	/*
	 * The ring itself failed: the result of these writes will never be
	 * known.
	 */
	for (unsigned n = 0; n < NVJ_QUEUE_DEPTH; n++)
		if (queue->slots[n].write) {
			queue->slots[n].write->error =
				write_error(queue, queue->slots[n].write, EIO);
			return release(queue, &queue->slots[n]);
		}
	return NULL;
}

/* --- Both ----------------------------------------------------------------- */

int nvju_queue_start(struct nvju_queue *queue, struct nvj_write *write)
{
	struct slot *slot = NULL;
	unsigned n;

	for (n = 0; n < NVJ_QUEUE_DEPTH && !slot; n++)
		if (!queue->slots[n].write)
			slot = &queue->slots[n];
	if (!slot || queue->used == NVJ_QUEUE_DEPTH)
		return nvju_fail(NVJ_EIO,
				 "cannot write block %llu of disk %s: %u writes are under way",
				 (unsigned long long)write->block, queue->path, queue->used);
	slot->write = write;
	slot->from = write->image;
	slot->done = 0;
	if (queue->direct && (uintptr_t)write->image % NVJ_BLOCK_BYTES) {
		uint8_t *copy = queue->copies + (size_t)(slot - queue->slots) * NVJ_BLOCK_BYTES;

		memcpy(copy, write->image, NVJ_BLOCK_BYTES);
		slot->from = copy;
	}
	if (queue->uring) {
		if (!prepare(queue, slot)) {
			slot->write = NULL;
			return write_error(queue, write, EBUSY);
		}
		queue->used++;
		if (queue->unsubmitted >= BATCH)
			submit(queue, 0); /* finish reports a failure of this */
		return 0;
	}
	write->error = write_now(queue, slot);
	slot->write = NULL;
	queue->ended[(queue->first + queue->used++) % NVJ_QUEUE_DEPTH] = write;
	return 0;
}

struct nvj_write *nvju_queue_finish(struct nvju_queue *queue)
{
	struct nvj_write *write;

	if (!queue->used)
		return NULL;
	if (queue->uring)
		return finish_uring(queue);
	write = queue->ended[queue->first];
	queue->first = (queue->first + 1) % NVJ_QUEUE_DEPTH;
	queue->used--;
	return write;
}

void nvju_queue_free(struct nvju_queue *queue)
{
	if (!queue)
		return;
	while (nvju_queue_finish(queue))
		;
	if (queue->uring)
		io_uring_queue_exit(&queue->ring);
	free(queue->copies);
	free(queue);
}
