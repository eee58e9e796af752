// SPDX-License-Identifier: GPL-2.0
/*
 * Block devices memory0, memory1, ... in plain memory that can be mapped by
 * DAX, as a pmem namespace can. The memory is what the kernel was started with:
 * reserve_mem=BYTES:4096:memory. It is divided evenly.
 *
 * All memory of the kernel is touched once: where the kernel is a program, its
 * host gives it a page at the first store to it, which takes longer than all else
 * that a measured operation does with a page.
 */
#include <linux/blkdev.h>
#include <linux/dax.h>
#include <linux/memblock.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/uio.h>

#define MAX_DEVICES 16u

struct memory {
	struct gendisk *disk;
	struct dax_device *dax;
	void *base;
	u64 size_bytes;
};

static struct memory memories[MAX_DEVICES];
static unsigned int devices = 1;
module_param(devices, uint, 0444);

static void submit(struct bio *bio)
{
	struct memory *memory = bio->bi_bdev->bd_disk->private_data;
	struct bio_vec vec;
	struct bvec_iter at;

	bio_for_each_segment(vec, bio, at)
	{
		void *here = memory->base + ((u64)at.bi_sector << SECTOR_SHIFT);

		if (op_is_write(bio_op(bio)))
			memcpy_from_bvec(here, &vec);
		else
			memcpy_to_bvec(&vec, here);
	}
	bio_endio(bio);
}

static const struct block_device_operations operations = {
	.owner = THIS_MODULE,
	.submit_bio = submit,
};

static long direct_access(struct dax_device *dax, pgoff_t first, long pages,
			  enum dax_access_mode mode, void **base, unsigned long *pfn)
{
	struct memory *memory = dax_get_private(dax);
	u64 offset = (u64)first << PAGE_SHIFT;

	if (offset >= memory->size_bytes)
		return -ERANGE;
	if (base)
		*base = memory->base + offset;
	if (pfn)
		*pfn = PHYS_PFN(__pa(memory->base + offset));
	return (memory->size_bytes - offset) >> PAGE_SHIFT;
}

static int zero_page_range(struct dax_device *dax, pgoff_t first, size_t pages)
{
	struct memory *memory = dax_get_private(dax);

	memset(memory->base + ((u64)first << PAGE_SHIFT), 0, pages << PAGE_SHIFT);
	return 0;
}

static const struct dax_operations dax_operations = {
	.direct_access = direct_access,
	.zero_page_range = zero_page_range,
};

static void release(struct memory *memory)
{
	if (memory->dax) {
		dax_remove_host(memory->disk);
		kill_dax(memory->dax);
		put_dax(memory->dax);
	}
	if (memory->disk) {
		del_gendisk(memory->disk);
		put_disk(memory->disk);
	}
	*memory = (struct memory){};
}

static int make(struct memory *memory, unsigned int number)
{
	struct queue_limits limits = {
		.logical_block_size = PAGE_SIZE,
		.physical_block_size = PAGE_SIZE,
		.features = BLK_FEAT_SYNCHRONOUS,
	};
	struct gendisk *disk = blk_alloc_disk(&limits, NUMA_NO_NODE);
	struct dax_device *dax;
	int error;

	if (IS_ERR(disk))
		return PTR_ERR(disk);
	disk->fops = &operations;
	disk->private_data = memory;
	snprintf(disk->disk_name, sizeof(disk->disk_name), "memory%u", number);
	set_capacity(disk, memory->size_bytes >> SECTOR_SHIFT);
	error = add_disk(disk);
	if (error) {
		put_disk(disk);
		return error;
	}
	memory->disk = disk;
	dax = alloc_dax(memory, &dax_operations);
	if (IS_ERR(dax))
		return PTR_ERR(dax);
	/* A fence is enough, as for an NVDIMM. */
	set_dax_synchronous(dax);
	error = dax_add_host(dax, disk);
	if (error) {
		kill_dax(dax);
		put_dax(dax);
		return error;
	}
	memory->dax = dax;
	return 0;
}

static void __exit memory_exit(void)
{
	for (unsigned int n = 0; n < MAX_DEVICES; n++)
		release(&memories[n]);
}

static void __init touch_free_memory(void)
{
	LIST_HEAD(blocks);
	struct page *page, *next;

	while ((page = alloc_pages(GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY | __GFP_ZERO,
				   MAX_PAGE_ORDER)))
		list_add(&page->lru, &blocks);
	list_for_each_entry_safe(page, next, &blocks, lru)
	{
		list_del(&page->lru);
		__free_pages(page, MAX_PAGE_ORDER);
	}
}

static int __init memory_init(void)
{
	phys_addr_t start, size;
	u64 each;

	if (!devices || devices > MAX_DEVICES)
		return -EINVAL;
	if (!reserve_mem_find_by_name("memory", &start, &size)) {
		pr_err("memory: start the kernel with reserve_mem=BYTES:4096:memory\n");
		return -ENOMEM;
	}
	memset(__va(start), 0, size);
	touch_free_memory();
	each = round_down((u64)size / devices, PAGE_SIZE);
	for (unsigned int n = 0; n < devices; n++) {
		int error;

		memories[n].base = __va(start + n * each);
		memories[n].size_bytes = each;
		error = make(&memories[n], n);
		if (error) {
			while (n-- > 0)
				release(&memories[n]);
			return error;
		}
	}
	return 0;
}

module_init(memory_init);
module_exit(memory_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("block devices in plain memory, with DAX");
