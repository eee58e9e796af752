// SPDX-License-Identifier: GPL-2.0
/*
 * Slices of persistent memory. A pmem device with an open slice is opened once,
 * exclusively. Its driver keeps it mapped: what dax_direct_access returned is
 * valid until we close the device. A slice belongs to a mount, or to a program
 * that has claimed it (claims.c) and writes to it through the block device.
 *
 * While a slice is open, others can read it through the block device, whose
 * page cache does not know our stores. So the page cache is written back and
 * emptied whenever a slice is opened or closed. Otherwise dirty pages of a
 * killed program could be written later, over the stores of the slice's next
 * user.
 */
#include <linux/dax.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "device.h"
#include "internal.h"

struct pmem {
	struct list_head link;
	struct list_head regions;
	dev_t number;
	struct nvjk_device device;
	struct dax_device *dax;
	bool dax_holder; /* for all of us: it lets the dax device forget us */
	u64 dax_offset;  /* bytes of the dax device before the block device's first */
	u64 size_bytes;
	char name[BDEVNAME_SIZE];
};

struct nvjk_region {
	struct list_head link;
	struct pmem *pmem;
	char user[NVJK_USER_BYTES];
	u64 offset, size_bytes;
	struct nvj_region region;
	struct nvjk_persist persist;
	bool claimed; /* by a program, which the kernel tells by itself */
	bool has_failed;
	u64 failed_at; /* in it, of the last failure */
	void (*failed)(void *context, u64 offset);
	void *failed_context;
};

/* Protects everything below. */
static DEFINE_MUTEX(pmems_lock);
static LIST_HEAD(pmems);

#define say(name, format, ...)                                                                     \
	do {                                                                                       \
		if (name)                                                                          \
			pr_err(NVJK_LABEL_TEXT " (%s): " format "\n", name, ##__VA_ARGS__);        \
	} while (0)

static void empty_cache(struct block_device *bdev)
{
	sync_blockdev(bdev);
	invalidate_bdev(bdev);
}

static int open_device(struct pmem *pmem, const char *path, const char *name)
{
	int error = nvjk_device_open(&pmem->device, path, pmem);

	if (error == -EBUSY)
		say(name,
		    "%s is in use: a journal's region must not be mounted or part of anything else",
		    path);
	else if (error == -ENOENT || error == -ENXIO)
		say(name, "there is no device %s: give the pmem device as journal_path", path);
	else if (error == -ENOTBLK)
		say(name, "%s is not a block device: give the pmem device, as /dev/pmem0", path);
	else if (error)
		say(name, "cannot open %s: error %d", path, error);
	return error;
}

/*
 * Memory of a dax device fails, or the device is removed. The owner of the
 * region is informed: at once, or when its journal is opened. For a region that
 * a program has claimed, the kernel informs the program.
 */
static int notify_failure(struct dax_device *dax, u64 offset, u64 bytes, int flags)
{
	struct nvjk_region *region;
	bool handled = false, claimed = false;
	struct pmem *pmem;

	mutex_lock(&pmems_lock);
	list_for_each_entry(pmem, &pmems, link) if (pmem->dax == dax)
		list_for_each_entry(region, &pmem->regions, link)
	{
		u64 begin = pmem->dax_offset + region->offset;

		if (offset >= begin + region->size_bytes ||
		    (offset < begin && begin - offset >= bytes))
			continue;
		claimed |= region->claimed;
		handled |= !region->claimed;
		region->has_failed = true;
		region->failed_at = max(offset, begin) - begin;
		if (region->failed)
			region->failed(region->failed_context, region->failed_at);
	}
	mutex_unlock(&pmems_lock);
	return handled && !claimed ? 0 : -EOPNOTSUPP;
}

static const struct dax_holder_operations holder_operations = {
	.notify_failure = notify_failure,
};

/*
 * The driver also maps a namespace in raw mode, but without struct page. DAX of
 * a file system needs struct page; we do not. The kernel would refuse such a
 * device. So the queue is marked for a moment as if it had struct page. No
 * other user can see this, because we have opened the device exclusively,
 * including all its partitions.
 */
static struct dax_device *get_dax(struct block_device *bdev, u64 *offset, void *holder)
{
	struct request_queue *queue = bdev_get_queue(bdev);
	bool has_pages = blk_queue_dax(queue);
	struct dax_device *dax;

	if (!has_pages)
		nvjk_device_say_dax(queue, true);
	dax = fs_dax_get_by_bdev(bdev, offset, holder, holder ? &holder_operations : NULL);
	if (!has_pages)
		nvjk_device_say_dax(queue, false);
	return dax;
}

static int open_pmem(struct pmem **result, const char *path, dev_t number, const char *name)
{
	struct pmem *pmem = kzalloc(sizeof(*pmem), GFP_KERNEL), *other;
	int error;

	if (!pmem)
		return -ENOMEM;
	error = open_device(pmem, path, name);
	if (error) {
		kfree(pmem);
		return error;
	}
	pmem->number = number;
	snprintf(pmem->name, sizeof(pmem->name), "%pg", pmem->device.bdev);
	pmem->size_bytes = bdev_nr_bytes(pmem->device.bdev);
	/*
	 * A dax device has one holder: of the partitions that we have opened,
	 * the first.
	 */
	pmem->dax_holder = true;
	list_for_each_entry(other, &pmems,
			    link) if (other->device.bdev->bd_disk == pmem->device.bdev->bd_disk)
		pmem->dax_holder = false;
	pmem->dax = get_dax(pmem->device.bdev, &pmem->dax_offset, pmem->dax_holder ? &pmems : NULL);
	if (!pmem->dax && pmem->dax_holder) {
		/*
		 * Another partition is the holder and is informed of failures.
		 * This one has only the bad blocks.
		 */
		pmem->dax_holder = false;
		pmem->dax = get_dax(pmem->device.bdev, &pmem->dax_offset, NULL);
	}
	if (!pmem->dax) {
		say(name,
		    "%s cannot be mapped (DAX): a journal's region must be persistent memory, as a "
		    "pmem namespace in fsdax or raw mode, and begin at a page",
		    pmem->name);
		nvjk_device_close(&pmem->device);
		kfree(pmem);
		return -EOPNOTSUPP;
	}
	INIT_LIST_HEAD(&pmem->regions);
	list_add(&pmem->link, &pmems);
	*result = pmem;
	return 0;
}

static int get_pmem(struct pmem **result, const char *path, const char *name)
{
	struct pmem *pmem;
	dev_t number;
	int error = lookup_bdev(path, &number);

	if (!error)
		list_for_each_entry(pmem, &pmems, link) if (pmem->number == number)
		{
			*result = pmem;
			return 0;
		}
	/* This logs an error in the path, too. */
	return open_pmem(result, path, number, name);
}

static void put_pmem(struct pmem *pmem)
{
	struct pmem *other;

	empty_cache(pmem->device.bdev);
	if (!list_empty(&pmem->regions))
		return;
	list_del(&pmem->link);
	if (pmem->dax_holder)
		list_for_each_entry(other, &pmems, link) if (other->dax == pmem->dax)
		{
			other->dax_holder = true;
			pmem->dax_holder = false;
			break;
		}
	fs_put_dax(pmem->dax, pmem->dax_holder ? &pmems : NULL);
	nvjk_device_close(&pmem->device);
	kfree(pmem);
}

/*
 * Checks that the device has the region's range, and that no other region
 * overlaps.
 */
static int check_slice(const struct pmem *pmem, u64 offset, u64 size, const char *name)
{
	const struct nvjk_region *other;

	if (!IS_ALIGNED(offset, PAGE_SIZE) || !IS_ALIGNED(size, PAGE_SIZE)) {
		say(name, "journal_offset %llu and journal_size %llu must be multiples of %lu",
		    offset, size, PAGE_SIZE);
		return -EINVAL;
	}
	if (offset >= pmem->size_bytes || size > pmem->size_bytes - offset) {
		say(name,
		    "journal_offset %llu and journal_size %llu go beyond the end of %s, which has "
		    "%llu bytes",
		    offset, size, pmem->name, pmem->size_bytes);
		return -EINVAL;
	}
	list_for_each_entry(other, &pmem->regions,
			    link) if (offset < other->offset + other->size_bytes &&
				      other->offset < offset + size)
	{
		say(name,
		    "bytes %llu to %llu of %s overlap with those that %s uses, %llu to %llu: give "
		    "each its own by journal_offset and journal_size",
		    offset, offset + size - 1, pmem->name, other->user, other->offset,
		    other->offset + other->size_bytes - 1);
		return -EBUSY;
	}
	return 0;
}

static int map(struct nvjk_region *region, const char *name)
{
	const struct pmem *pmem = region->pmem;
	pgoff_t first = (pmem->dax_offset + region->offset) >> PAGE_SHIFT;
	long pages = region->size_bytes >> PAGE_SHIFT, got;
	void *base;
	int id;

	id = dax_read_lock();
	got = dax_direct_access(pmem->dax, first, pages, DAX_ACCESS, &base, NULL);
	dax_read_unlock(id);
	if (got < 0) {
		say(name,
		    "bytes %llu to %llu of %s cannot be mapped: error %ld; is the memory damaged? "
		    "See badblocks of the namespace",
		    region->offset, region->offset + region->size_bytes - 1, pmem->name, got);
		return got;
	}
	if (got < pages) {
		say(name,
		    "only %ld of %ld pages of %s lie beside each other at %llu: a region must be "
		    "contiguous",
		    got, pages, pmem->name, region->offset);
		return -EOPNOTSUPP;
	}
	region->region = (struct nvj_region){
		.base = base,
		.size_bytes = region->size_bytes,
		.persistence = &region->persist.table,
		.read = nvjk_media_read,
	};
	return 0;
}

static int open_region(struct nvjk_region *region, const char *path, const char *name)
{
	int error = get_pmem(&region->pmem, path, name);

	if (error)
		return error;
	error = check_slice(region->pmem, region->offset, region->size_bytes, name);
	if (!error) {
		empty_cache(region->pmem->device.bdev);
		error = map(region, name);
		/*
		 * A program that claims it can still read the readable part:
		 * nvj recover.
		 */
		if (!name && (error == -EIO || error == -EHWPOISON))
			error = 0;
	}
	if (error)
		put_pmem(region->pmem);
	else
		list_add(&region->link, &region->pmem->regions);
	return error;
}

int nvjk_region_open(struct nvjk_region **result, const char *path, u64 offset, u64 size,
		     const char *user, const char *name)
{
	struct nvjk_region *region = kzalloc(sizeof(*region), GFP_KERNEL);
	int error;

	*result = NULL;
	if (!region)
		return -ENOMEM;
	region->offset = offset;
	region->size_bytes = size;
	region->claimed = !name;
	strscpy(region->user, user, sizeof(region->user));
	error = nvjk_persist_init(&region->persist);
	if (error) {
		if (error == -EOPNOTSUPP)
			say(name, "this processor has no way to write its cache back that we know");
		kfree(region);
		return error;
	}
	mutex_lock(&pmems_lock);
	error = open_region(region, path, name);
	mutex_unlock(&pmems_lock);
	if (error) {
		nvjk_persist_exit(&region->persist);
		kfree(region);
		return error;
	}
	*result = region;
	return 0;
}

void nvjk_region_close(struct nvjk_region *region)
{
	if (!region)
		return;
	mutex_lock(&pmems_lock);
	list_del(&region->link);
	put_pmem(region->pmem);
	mutex_unlock(&pmems_lock);
	nvjk_persist_exit(&region->persist);
	kfree(region);
}

const struct nvj_region *nvjk_region(const struct nvjk_region *region)
{
	return &region->region;
}

bool nvjk_region_is_synchronous(const struct nvjk_region *region)
{
	return dax_synchronous(region->pmem->dax);
}

void nvjk_regions_show(struct seq_file *seq)
{
	const struct nvjk_region *region;
	const struct pmem *pmem;

	mutex_lock(&pmems_lock);
	list_for_each_entry(pmem, &pmems, link)
	{
		list_for_each_entry(region, &pmem->regions, link)
		{
			seq_printf(seq, "%s %u:%u %llu %llu %s\n", pmem->name, MAJOR(pmem->number),
				   MINOR(pmem->number), region->offset, region->size_bytes,
				   region->user);
		}
	}
	mutex_unlock(&pmems_lock);
}

const char *nvjk_region_device(const struct nvjk_region *region)
{
	return region->pmem->name;
}

u64 nvjk_region_offset(const struct nvjk_region *region)
{
	return region->offset;
}

void nvjk_region_on_failure(struct nvjk_region *region, void (*failed)(void *context, u64 offset),
			    void *context)
{
	mutex_lock(&pmems_lock);
	region->failed = failed;
	region->failed_context = context;
	if (failed && region->has_failed)
		failed(context, region->failed_at);
	mutex_unlock(&pmems_lock);
}

bool nvjk_region_is_bad(const struct nvjk_region *region, u64 *bad)
{
	bool is = nvjk_media_is_bad(region->pmem->device.bdev, region->offset, region->size_bytes,
				    bad);

	if (is)
		*bad -= region->offset;
	return is;
}

void nvjk_region_counts(const struct nvjk_region *region, struct nvjk_persist_counts *counts)
{
	nvjk_persist_sum(&region->persist, counts);
}
