// SPDX-License-Identifier: GPL-2.0
/*
 * The mark of the journal's tail, in a block of the disk that is not used
 * otherwise. It is read at mount, and each checkpoint writes it after the tail
 * has moved. A write allocates no memory, because threads that need room in the
 * ring also wait for this write.
 */
#include <linux/mm.h>

#include "internal.h"

static int transfer(struct nvjk_disk *disk, struct page *page, u64 block, blk_opf_t operation)
{
	struct bio_vec vector;
	struct bio bio;
	int error;

	if (block >= bdev_nr_bytes(disk->bdev) / NVJ_BLOCK_BYTES)
		return -EINVAL;
	bio_init(&bio, disk->bdev, &vector, 1, operation | REQ_META | REQ_SYNC);
	bio.bi_iter.bi_sector = (sector_t)block * (NVJ_BLOCK_BYTES >> SECTOR_SHIFT);
	__bio_add_page(&bio, page, NVJ_BLOCK_BYTES, 0);
	error = submit_bio_wait(&bio);
	bio_uninit(&bio);
	return error;
}

int nvjk_disk_mark_at(struct nvjk_disk *disk, u64 block, const u8 uuid[16])
{
	disk->mark = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!disk->mark)
		return -ENOMEM;
	disk->mark_block = block;
	memcpy(disk->mark_uuid, uuid, sizeof(disk->mark_uuid));
	return 0;
}

void nvjk_disk_move_mark(struct nvjk_disk *disk, u64 block)
{
	disk->mark_block = block;
}

void nvjk_mark_exit(struct nvjk_disk *disk)
{
	if (disk->mark)
		__free_page(disk->mark);
}

/* The engine calls it for one round after the other. */
void nvjk_tail_moved(void *context, u64 tid)
{
	struct nvjk_disk *disk = context;
	int error;

	if (!disk->mark)
		return;
	nvj_mark_make(page_address(disk->mark), disk->mark_uuid, tid);
	error = transfer(disk, disk->mark, disk->mark_block, REQ_OP_WRITE);
	atomic64_inc(error ? &disk->errors : &disk->marks);
	if (error && !disk->mark_failed) {
		disk->mark_failed = true;
		pr_err(NVJK_LABEL_TEXT
		       " (%pg): the mark of the journal's tail cannot be written to "
		       "block %llu (error %d): a mount may not notice an older copy of the "
		       "region\n",
		       disk->bdev, disk->mark_block, error);
	}
}

int nvjk_disk_read_home(struct nvjk_disk *disk, u64 block, void *image)
{
	struct page *page = alloc_page(GFP_KERNEL);
	int error;

	if (!page)
		return -ENOMEM;
	error = transfer(disk, page, block, REQ_OP_READ);
	if (!error)
		memcpy(image, page_address(page), NVJ_BLOCK_BYTES);
	__free_page(page);
	return error;
}

int nvjk_disk_read_mark(struct nvjk_disk *disk, u64 block, const u8 uuid[16], u64 *tid)
{
	struct page *page = alloc_page(GFP_KERNEL);
	int error;

	if (!page)
		return -ENOMEM;
	error = transfer(disk, page, block, REQ_OP_READ);
	atomic64_inc(error ? &disk->errors : &disk->reads);
	if (!error)
		*tid = nvj_mark_tail(page_address(page), uuid);
	__free_page(page);
	return error;
}
