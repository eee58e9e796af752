// SPDX-License-Identifier: GPL-2.0
/*
 * Opens the region of a mount. It is refused if it belongs to another disk, if
 * it contains something for another disk, or if committed data could be lost
 * there. Nothing is written here.
 */
#include <linux/slab.h>
#include <linux/uuid.h>

#include "mount.h"

/* The size of the head of a region: its superblock and the copy. */
#define HEAD_BYTES (NVJ_SUPER_COPY_OFFSET + NVJ_BLOCK_BYTES)

void nvjk_say(const struct super_block *sb, const char *level, const char *format, ...)
{
	struct va_format message;
	va_list arguments;

	va_start(arguments, format);
	message.fmt = format;
	message.va = &arguments;
	if (sb)
		printk("%s" NVJK_LABEL_TEXT " (%s): %pV\n", level, sb->s_id, &message);
	else
		printk("%s" NVJK_LABEL_TEXT ": %pV\n", level, &message);
	va_end(arguments);
}

static bool is_zero(const u8 *uuid)
{
	return !memchr_inv(uuid, 0, UUID_SIZE);
}

void nvjk_say_findings(const struct super_block *sb, const struct nvj_report *report)
{
	static const char *const names[] = {
		[NVJ_FOUND_SUPER] = "one copy of the superblock",
		[NVJ_FOUND_TAIL] = "one copy of the tail",
		[NVJ_FOUND_TAILS] = "both copies of the tail",
		[NVJ_FOUND_COMMIT] = "a record of the commit ring",
		[NVJ_FOUND_RECORD] = "a committed record",
		[NVJ_FOUND_LAYOUT] = "the layout",
		[NVJ_FOUND_SUPERS] = "both copies of the superblock",
	};
	u32 i;

	for (i = 0; i < min(report->findings, NVJ_MAX_FINDINGS); i++) {
		const struct nvj_finding *f = &report->finding[i];

		nvjk_say(sb, KERN_ERR,
			 "%s: %s, at byte %llu of the region (partition %u, position %llu)",
			 f->unreadable ? "memory that cannot be read" : "damaged",
			 f->kind < ARRAY_SIZE(names) && names[f->kind] ? names[f->kind] : "it",
			 f->offset, f->partition, f->position);
	}
	if (report->findings > NVJ_MAX_FINDINGS)
		nvjk_say(sb, KERN_ERR, "and %u more", report->findings - NVJ_MAX_FINDINGS);
}

void nvjk_say_cache_in_use(const struct super_block *sb, int error)
{
	nvjk_say(sb, KERN_ERR,
		 "the disk cannot be recovered while a program writes to it (error %d): end the "
		 "program, and mount again",
		 error);
}

/*
 * Reads the journal's superblock. Returns 0, or the reason why it cannot be
 * used, which is logged.
 */
static int read_super(struct super_block *sb, const struct nvjk_mount_options *o,
		      const struct nvj_region *region, struct nvj_disk_super *super)
{
	int err = nvj_read_super(region, super);

	switch (err) {
	case 0:
		break;
	case NVJ_ENODATA:
		nvjk_say(sb, KERN_ERR,
			 "there is no journal at byte %llu of %s, and what is there is left as it "
			 "is: make one by nvj format",
			 o->journal_offset, o->journal_path);
		break;
	case NVJ_EUCLEAN:
		nvjk_say(sb, KERN_ERR,
			 "the journal at byte %llu of %s is damaged: see nvj check; nvj format "
			 "makes a new one, if this disk needs nothing of it",
			 o->journal_offset, o->journal_path);
		break;
	default:
		nvjk_say(sb, KERN_ERR, "the journal at byte %llu of %s cannot be used: %s",
			 o->journal_offset, o->journal_path, nvj_strerror(err));
	}
	return err;
}

static int open_slice(struct super_block *sb, struct nvjk_region **region,
		      const struct nvjk_mount_options *o, u64 bytes)
{
	char user[NVJK_USER_BYTES];

	snprintf(user, sizeof(user), "the mount of %s", sb->s_id);
	return nvjk_region_open(region, o->journal_path, o->journal_offset, bytes, user, sb->s_id);
}

/*
 * A commit is a fence. This checks that a fence is enough, unless an option
 * says that it need not be.
 */
static int check_durable(struct super_block *sb, const struct nvjk_mount *nvj)
{
	if (nvjk_region_is_synchronous(nvj->region))
		return 0;
	if (nvj->options.allow_volatile) {
		nvjk_say(sb, KERN_WARNING,
			 "%s is memory that only its host can flush, and nobody asks it to: a loss "
			 "of power may lose what is committed (allow_volatile)",
			 nvj->options.journal_path);
		return 0;
	}
	nvjk_say(sb, KERN_ERR,
		 "%s is memory that only its host can flush (as virtio-pmem is): what is committed "
		 "would not survive a loss of power. Take an NVDIMM, or for development mount with "
		 "allow_volatile",
		 nvj->options.journal_path);
	return -EOPNOTSUPP;
}

/*
 * Reads the length of the region from its superblock or the copy. Whether the
 * region really has that length is known only when it is opened. Without the
 * length, the slices of other mounts would conflict.
 */
static int region_size(struct super_block *sb, const struct nvjk_mount_options *o, u64 *bytes)
{
	struct nvj_disk_super super;
	struct nvj_region any_size;
	struct nvjk_region *head;
	int err;

	err = open_slice(sb, &head, o, HEAD_BYTES);
	if (err)
		return err;
	any_size = *nvjk_region(head);
	any_size.size_bytes = U64_MAX;
	err = read_super(sb, o, &any_size, &super);
	if (!err)
		*bytes = super.size_bytes;
	nvjk_region_close(head);
	return err;
}

/*
 * journal_size extends a region. This checks that the new part contains no
 * other journal.
 */
static int check_growth(struct super_block *sb, const struct nvjk_mount *nvj, u64 formatted)
{
	const struct nvj_region *region = nvjk_region(nvj->region);
	u64 at;

	for (at = round_up(formatted, PAGE_SIZE); at < region->size_bytes; at += PAGE_SIZE) {
		u64 magic;

		/* Of the other journal, only the first superblock may be in the new part. */
		if (!region->read(&magic, (const u8 *)region->base + at, sizeof(magic)) &&
		    magic == NVJ_SUPER_MAGIC) {
			nvjk_say(sb, KERN_ERR,
				 "journal_size=%llu takes in another journal, at byte %llu of %s: "
				 "give less, or format all of it by nvj format",
				 region->size_bytes, nvj->options.journal_offset + at,
				 nvj->options.journal_path);
			return -EINVAL;
		}
		cond_resched();
	}
	return 0;
}

/*
 * Opens the region and reads its superblock. Returns 0, or the reason why it
 * cannot be used, which is logged.
 */
int nvjk_mount_open_region(struct super_block *sb, struct nvjk_mount *nvj,
			   struct nvj_disk_super *super)
{
	const struct nvjk_mount_options *o = &nvj->options;
	u64 formatted, bytes;
	int err;

	err = region_size(sb, o, &formatted);
	if (err)
		return err;
	bytes = o->given_size && o->journal_size ? o->journal_size : round_up(formatted, PAGE_SIZE);
	if (bytes < formatted) {
		nvjk_say(sb, KERN_ERR,
			 "journal_size=%llu is less than the journal's %llu bytes: give it so "
			 "many, or make a smaller one by nvj format",
			 bytes, formatted);
		return -EINVAL;
	}
	err = open_slice(sb, &nvj->region, o, bytes);
	if (err)
		return err;
	err = check_durable(sb, nvj);
	if (!err)
		err = check_growth(sb, nvj, formatted);
	if (err)
		return err;
	/* Read again, because now no other user can write to it. */
	return read_super(sb, o, nvjk_region(nvj->region), super);
}

/*
 * The disk does not need recovery, and the region will be formatted. Returns 0
 * if that loses nothing. If the region has blocks that are not at home, the
 * administrator decides, and not a mount.
 */
static int check_clean(struct super_block *sb, const struct nvjk_mount *nvj)
{
	const struct nvjk_mount_options *o = &nvj->options;
	struct nvj_report *report;
	struct nvjk_disk *disk;
	int err;

	report = kzalloc(sizeof(*report), GFP_KERNEL);
	if (!report)
		return -ENOMEM;
	err = nvjk_disk_open(&disk, sb->s_bdev, NULL);
	if (err)
		goto out;
	err = nvj_check(nvjk_region(nvj->region), nvjk_disk_platform(disk), report);
	nvjk_disk_close(disk);
	if (err) {
		nvjk_say_findings(sb, report);
		nvjk_say(sb, KERN_ERR,
			 "the journal at byte %llu of %s cannot be used: %s. It may hold what is "
			 "not at home: see nvj check %s --offset %llu; to give it up: nvj format "
			 "%s --offset %llu --size %llu --force",
			 o->journal_offset, o->journal_path, nvj_strerror(err), o->journal_path,
			 o->journal_offset, o->journal_path, o->journal_offset,
			 nvjk_region(nvj->region)->size_bytes);
	} else if (!report->clean) {
		nvjk_say(sb, KERN_ERR,
			 "the journal at byte %llu of %s has %llu transactions that are not at "
			 "home, and this disk does not wait for them. Carry them to their disk: "
			 "nvj recover %s --offset %llu --target DISK; or give them up: nvj format "
			 "%s --offset %llu --size %llu --force",
			 o->journal_offset, o->journal_path, report->transactions, o->journal_path,
			 o->journal_offset, o->journal_path, o->journal_offset,
			 nvjk_region(nvj->region)->size_bytes);
		err = NVJ_EMEDIUM;
	}
out:
	kfree(report);
	return err;
}

/*
 * Checks that the region is not older than the last checkpoint's mark on the
 * disk.
 */
static int check_tail(struct super_block *sb, const struct nvjk_mount *nvj,
		      const struct nvjk_disk_identity *identity)
{
	u64 block = identity->mark_block, marked = 0, tail;
	struct nvjk_disk *disk;
	int err;

	if (!block)
		return 0;
	err = nvjk_disk_open(&disk, sb->s_bdev, NULL);
	if (err)
		return err;
	err = nvjk_disk_read_mark(disk, block, identity->journal_uuid, &marked);
	nvjk_disk_close(disk);
	if (err) {
		const struct nvjk_mount_options *o = &nvj->options;

		nvjk_say(sb, KERN_ERR,
			 "block %llu, with the mark of the journal's tail, cannot be read (error "
			 "%d): it is not known whether this region is an older copy. If it is the "
			 "region that the disk was last mounted with: nvj recover %s --offset %llu "
			 "--target /dev/%s --any-disk",
			 block, err, o->journal_path, o->journal_offset, sb->s_id);
		return NVJ_EMEDIUM;
	}
	/* Recovery reports the damage. */
	if (nvj_read_tail(nvjk_region(nvj->region), &tail) || tail >= marked)
		return 0;
	nvjk_say(
		sb, KERN_ERR,
		"the region at byte %llu of %s is an older copy: it has transactions up to %llu at "
		"home, and the disk has them up to %llu. Mount with the region itself",
		nvj->options.journal_offset, nvj->options.journal_path, tail, marked);
	return NVJ_EMEDIUM;
}

int nvjk_mount_check_region(struct super_block *sb, const struct nvjk_mount *nvj,
			    const struct nvj_disk_super *super,
			    const struct nvjk_disk_identity *disk)
{
	const struct nvjk_mount_options *o = &nvj->options;

	if (!is_zero(super->disk_uuid) && memcmp(super->disk_uuid, disk->uuid, UUID_SIZE)) {
		nvjk_say(sb, KERN_ERR,
			 "the journal on %s belongs to disk %pUb, and this is %pUb: choose another "
			 "region, or nvj format it, if that disk needs it no more",
			 o->journal_path, super->disk_uuid, disk->uuid);
		return NVJ_EMEDIUM;
	}
	if (!disk->marked)
		return check_clean(sb, nvj);
	if (memcmp(super->uuid, disk->journal_uuid, UUID_SIZE)) {
		nvjk_say(sb, KERN_ERR,
			 "the disk needs recovery from journal %pUb, and the one on %s is %pUb: "
			 "mount with the region that it was last mounted with",
			 disk->journal_uuid, o->journal_path, super->uuid);
		return NVJ_EMEDIUM;
	}
	if (bdev_read_only(sb->s_bdev)) {
		nvjk_say(sb, KERN_ERR, "the disk needs recovery, and is write-protected");
		return -EROFS;
	}
	return check_tail(sb, nvj, disk);
}

int nvjk_mount_format(struct super_block *sb, struct nvjk_mount *nvj, const u8 *disk_uuid)
{
	struct nvj_format_options options = {
		.partitions = nvj->options.partitions,
		.placement = nvj->options.placement,
		.now_unix = ktime_get_real_seconds(),
	};
	int err;

	generate_random_uuid(nvj->uuid);
	memcpy(options.uuid, nvj->uuid, UUID_SIZE);
	memcpy(options.disk_uuid, disk_uuid, UUID_SIZE);
	err = nvj_format(nvjk_region(nvj->region), &options);
	if (err)
		nvjk_say(sb, KERN_ERR,
			 "no journal of %u partitions can be made in %llu bytes of %s: %s",
			 nvj->options.partitions, nvjk_region(nvj->region)->size_bytes,
			 nvj->options.journal_path, nvj_strerror(err));
	return err;
}

void nvjk_mount_free(struct nvjk_mount *nvj)
{
	if (!nvj)
		return;
	nvjk_region_close(nvj->region);
	kfree(nvj->options.journal_path);
	kfree(nvj);
}
