// SPDX-License-Identifier: GPL-2.0
/*
 * Mount. The order of the steps ensures that nothing is written before all checks
 * pass:
 *
 * 	1. The disk is checked here, and the region in mount/region.c.
 * 	2. If the disk needs recovery, committed blocks are written home, the working
 * 	   maps are made anew (nvjournal/jfs), and the mark is removed from the disk.
 * 	3. JFS reads the disk. For a read-write mount the region is formatted again,
 * 	   with a new UUID, and opened. So an older copy of a region can never be taken
 * 	   for it.
 *
 * Then JFS writes mark and UUID to the disk (mark.c), before its first transaction.
 */
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/sched/mm.h>
#include <linux/uuid.h>

#include "journal.h"
#include "jfs_dmap.h"
#include "jfs_imap.h"
#include "../../jfs/jfs.h"

/* The least that a handle can have: a transaction of two inodes and large directories. */
#define LEAST_HANDLE_BLOCKS 32u

/* --- Checks ------------------------------------------------------------------------ */

static int read_checked(struct super_block *sb, u64 block, void *image, struct nvj_jfs_super *super)
{
	int error = jfsnvj_read_super(sb, block, image);

	if (error)
		nvjk_say(sb, KERN_ERR, "the superblock cannot be read");
	else if (!nvj_jfs_read_super(image, super)) {
		/* As for any file system that is tried. */
		nvjk_say(sb, KERN_INFO, "there is no JFS on the disk");
		error = -EINVAL;
	}
	return error;
}

static int check_disk(struct super_block *sb, const struct nvj_jfs_super *super, void *page)
{
	if (!super->inline_log) {
		nvjk_say(sb, KERN_ERR,
			 "the disk's own journal is on another device: make the file system with "
			 "an inner one, by mkfs.jfs without -J");
		return -EINVAL;
	}
	if (jfsnvj_read_super(sb, super->log_block + 1, page) || !nvj_jfs_log_is_clean(page)) {
		nvjk_say(sb, KERN_ERR,
			 "the disk's own journal is not empty: run fsck.jfs, or mount the disk "
			 "once as jfs");
		return -EUCLEAN;
	}
	if (!super->marked && super->state != NVJ_JFS_CLEAN && !sb_rdonly(sb)) {
		nvjk_say(sb, KERN_ERR, "the disk was not unmounted cleanly: run fsck.jfs");
		return -EUCLEAN;
	}
	return 0;
}

/* --- Recovery ------------------------------------------------------------------------ */

static int read_block(void *context, u64 block, void *image)
{
	return jfsnvj_read_super(context, block, image);
}

static int write_block(void *context, u64 block, const void *image)
{
	struct super_block *sb = context;
	struct buffer_head *bh = sb_getblk(sb, block);

	if (!bh)
		return -EIO;
	lock_buffer(bh);
	memcpy(bh->b_data, image, NVJ_JFS_BLOCK_BYTES);
	set_buffer_uptodate(bh);
	unlock_buffer(bh);
	mark_buffer_dirty(bh);
	brelse(bh);
	return 0;
}

static void *allocate(void *context, size_t bytes)
{
	return kvzalloc(bytes, GFP_KERNEL);
}

static void release(void *context, void *memory, size_t bytes)
{
	kvfree(memory);
}

static int rebuild(struct super_block *sb)
{
	const struct nvj_jfs_disk disk = {
		.context = sb,
		.read = read_block,
		.write = write_block,
		.allocate = allocate,
		.release = release,
	};
	int error = nvj_jfs_rebuild(&disk);

	if (!error)
		error = sync_blockdev(sb->s_bdev);
	if (error)
		nvjk_say(sb, KERN_ERR,
			 "the blocks of the journal are at home, but the maps cannot be made anew "
			 "(error %d): %s",
			 error, error == NVJ_JFS_EUCLEAN ? "they are damaged" : "mount it again");
	return error;
}

/* JFS, too, writes past the cache, so what a program writes to it is not what JFS sees. */
static int drop_cache(struct super_block *sb)
{
	int err = nvjk_disk_drop_cache(sb->s_bdev);

	if (err)
		nvjk_say_cache_in_use(sb, err);
	return err;
}

/* Writes the region's committed blocks home, and removes the mark from the disk. */
static int recover(struct super_block *sb, struct nvjk_mount *mount)
{
	struct nvj_report *report = kzalloc(sizeof(*report), GFP_KERNEL);
	struct nvjk_disk *disk;
	int err;

	if (!report)
		return -ENOMEM;
	if (sb_rdonly(sb))
		nvjk_say(sb, KERN_INFO,
			 "the disk is written for its recovery, though mounted read-only");
	err = drop_cache(sb);
	if (err)
		goto out;
	err = nvjk_disk_open(&disk, sb->s_bdev, NULL);
	if (err)
		goto out;
	err = nvj_recover_with(nvjk_region(mount->region), nvjk_disk_platform(disk), nvjk_run,
			       report);
	nvjk_disk_close(disk);
	nvjk_say_findings(sb, report);
	if (err) {
		nvjk_say(sb, KERN_ERR, "the disk cannot be recovered from %s: %s; %s",
			 mount->options.journal_path, nvj_strerror(err),
			 err != NVJ_EUCLEAN ? "mount it again, it is safe to repeat"
			 : report->blocks   ? "not all was written; see nvj check"
					    : "nothing was written; see nvj check");
		goto out;
	}
	err = rebuild(sb);
	if (err)
		goto out;
	nvjk_say(sb, KERN_INFO, "recovered: %llu blocks of %llu transactions from %s",
		 report->blocks, report->transactions, mount->options.journal_path);
	err = jfsnvj_unmark(sb);
	if (err)
		nvjk_say(sb, KERN_ERR,
			 "the disk was recovered, but its superblock cannot be written");
out:
	kfree(report);
	return err;
}

static int check_region(struct super_block *sb, struct nvjk_mount *mount,
			const struct nvj_jfs_super *super)
{
	const struct nvjk_disk_identity identity = {
		.uuid = super->uuid,
		.marked = super->marked,
		.journal_uuid = super->journal_uuid,
		.mark_block = super->mark_block,
	};
	struct nvj_disk_super region;
	int err;

	err = nvjk_mount_open_region(sb, mount, &region);
	if (!err)
		err = nvjk_mount_check_region(sb, mount, &region, &identity);
	if (!err && !mount->options.partitions)
		mount->options.partitions = region.partitions;
	if (!err && !mount->options.placement)
		mount->options.placement = region.placement;
	return err;
}

static int mount_with(struct super_block *sb, struct nvjk_mount *mount, void *page)
{
	struct nvj_jfs_super super;
	int err;

	err = read_checked(sb, NVJ_JFS_SUPER, page, &super);
	if (!err)
		err = check_disk(sb, &super, page);
	if (err)
		return err;
	if (!mount->options.journal_path) {
		nvjk_say(sb, KERN_ERR, "say where the journal is: -o journal_path=/dev/pmem0");
		return -EINVAL;
	}
	err = check_region(sb, mount, &super);
	if (!err && super.marked) {
		err = recover(sb, mount);
		/* If the power failed while JFS extended it, the log has its old place again. */
		if (!err)
			err = read_checked(sb, NVJ_JFS_SUPER, page, &super);
	}
	/* JFS never uses the first block of its log. */
	mount->mark_block = super.log_block;
	return err;
}

int jfsnvj_mount(struct super_block *sb)
{
	void *page = (void *)__get_free_page(GFP_KERNEL);
	int err = page ? mount_with(sb, jfsnvj_of(sb)->mount, page) : -ENOMEM;

	free_page((unsigned long)page);
	return err;
}

/* --- A remount read-write ------------------------------------------------------------- */

int jfsnvj_read_inode_map(struct super_block *sb)
{
	struct inode *ipimap = JFS_SBI(sb)->ipimap;
	struct inomap *before = JFS_IP(ipimap)->i_imap;
	int error = diMount(ipimap);

	if (!error)
		kfree(before);
	return error;
}

int jfsnvj_read_block_map(struct super_block *sb)
{
	struct bmap *before = JFS_SBI(sb)->bmap;
	int error = dbMount(JFS_SBI(sb)->ipbmap);

	if (!error)
		kfree(before);
	return error;
}

/* --- The journal ---------------------------------------------------------------------- */

/* Any thread may call it. */
static void aborted(void *context, int error, u64 block)
{
	struct jfsnvj *j = context;

	WRITE_ONCE(j->aborted, true);
	if (block != U64_MAX)
		nvjk_say(j->sb, KERN_ERR, "block %llu cannot be written: error %d", block, error);
	nvjk_say(j->sb, KERN_ERR,
		 "the journal has failed (error %d): the file system is read-only now. The region "
		 "has what is committed: unmount, and mount again",
		 error);
	if (JFS_SBI(j->sb)->flag & JFS_ERR_PANIC)
		panic("JFSNVJ-fs (%s): the journal has failed\n", j->sb->s_id);
	jfsnvj_becomes_read_only(j->sb);
	/* Transactions that wait for their commit must end. */
	jfsnvj_thread_commit(j);
}

static void writes_home(void *context, u64 block, struct bio *bio)
{
	struct jfsnvj *j = context;

	jfsnvj_writes_home(j->sb, block, bio);
}

static void memory_failed(void *context, u64 offset)
{
	struct jfsnvj *j = context;

	nvjk_say(j->sb, KERN_ERR,
		 "the memory of the journal fails, at byte %llu of its region on %s", offset,
		 nvjk_region_device(j->mount->region));
	nvj_abort(j->nvj, -EIO);
}

static void init_log(struct jfsnvj *j)
{
	struct jfs_log *log = &j->log;

	memset(log, 0, sizeof(*log));
	log->nvj = j;
	log->logsize = 1;
	INIT_LIST_HEAD(&log->sb_list);
	INIT_LIST_HEAD(&log->synclist);
	INIT_LIST_HEAD(&log->cqueue);
	init_waitqueue_head(&log->syncwait);
	mutex_init(&log->loglock);
	spin_lock_init(&log->gclock);
	LOGSYNC_LOCK_INIT(log);
	j->queued = 0;
	atomic64_set(&j->newest, 0);
	j->before = NULL;
	j->at_rest = j->ending = j->wants_read_only = j->wants_commit = j->wants_checkpoint = false;
}

static int open_engine(struct jfsnvj *j)
{
	const struct nvjk_disk_hooks hooks = {
		.context = j,
		.before_commit = jfsnvj_before_commit,
		.aborted = aborted,
		.writes = writes_home,
	};
	struct nvj_options options = {.workers = true};
	int err;

	err = nvjk_disk_open(&j->disk, j->sb->s_bdev, &hooks);
	if (err)
		return err;
	err = nvjk_disk_mark_at(j->disk, j->mount->mark_block, j->mount->uuid);
	if (!err)
		err = nvj_open(&j->nvj, nvjk_region(j->mount->region), nvjk_disk_platform(j->disk),
			       &options, NULL);
	if (err) {
		nvjk_disk_close(j->disk);
		j->disk = NULL;
		return err;
	}
	nvjk_disk_end_recovery(j->disk);
	if (nvj_max_credits(j->nvj) < LEAST_HANDLE_BLOCKS * NVJ_BLOCK_CREDITS)
		err = -EFBIG;
	return err;
}

static void close_engine(struct jfsnvj *j, bool abandon)
{
	struct nvj *nvj = j->nvj;

	j->nvj = NULL;
	if (abandon || WARN_ON_ONCE(nvj_close(nvj) == NVJ_EBUSY))
		nvj_abandon(nvj);
	nvjk_disk_close(j->disk);
	j->disk = NULL;
}

static int start_threads(struct jfsnvj *j)
{
	int err;

	err = nvjk_workers_start(&j->workers, j->nvj, j->mount->options.partitions, j->sb->s_id);
	if (err)
		return err;
	err = jfsnvj_thread_start(j);
	if (err)
		goto no_thread;
	err = nvjk_shrinker_start(&j->shrinker, j->nvj, j->sb->s_id);
	if (err)
		goto no_shrinker;
	return 0;

no_shrinker:
	jfsnvj_thread_stop(j);
no_thread:
	nvjk_workers_stop(j->workers);
	return err;
}

static int disk_uuid(struct super_block *sb, u8 *uuid)
{
	void *page = (void *)__get_free_page(GFP_KERNEL);
	struct nvj_jfs_super super;
	int err;

	if (!page)
		return -ENOMEM;
	err = read_checked(sb, NVJ_JFS_SUPER, page, &super);
	if (!err)
		memcpy(uuid, super.uuid, UUID_SIZE);
	free_page((unsigned long)page);
	return err;
}

int jfsnvj_open(struct jfsnvj *j)
{
	u8 uuid[UUID_SIZE];
	unsigned int i;
	int err;

	init_log(j);
	j->aborted = false;
	mutex_init(&j->one_lock_mutex);
	mutex_init(&j->checkpoint_mutex);
	j->one_lock = j->mount->options.one_lock ? &j->one_lock_mutex : NULL;
	for (i = 0; i < JFSNVJ_MAP_LOCKS; i++)
		mutex_init(&j->map_lock[i]);
	init_waitqueue_head(&j->thread_wait);
	err = disk_uuid(j->sb, uuid);
	if (!err)
		err = nvjk_mount_format(j->sb, j->mount, uuid);
	if (err)
		return err;
	err = open_engine(j);
	if (!err)
		err = start_threads(j);
	if (err) {
		nvjk_say(j->sb, KERN_ERR, "the journal on %s cannot be opened: %s",
			 j->mount->options.journal_path,
			 err == -EFBIG ? "the region is too small for JFS; choose a larger "
					 "journal_size= or fewer partitions"
				       : nvj_strerror(err));
		if (j->nvj)
			close_engine(j, true);
		return err;
	}
	nvjk_region_on_failure(j->mount->region, memory_failed, j);
	jfsnvj_proc_create(j);
	nvjk_say(j->sb, KERN_WARNING,
		 "jfsnvj is experimental: see docs/jfsnvj.md for what is shown of it");
	return 0;
}

int jfsnvj_close(struct jfsnvj *j)
{
	unsigned int nofs = memalloc_nofs_save();
	bool failed = j->aborted;

	nvjk_shrinker_stop(j->shrinker);
	jfsnvj_proc_remove(j);
	nvjk_region_on_failure(j->mount->region, NULL, NULL);
	jfsnvj_thread_stop(j);
	nvjk_workers_stop(j->workers);
	close_engine(j, failed);
	memalloc_nofs_restore(nofs);
	/* A remount read-only has failed, or the file system is unmounted. */
	jfsnvj_is_read_only_now(j);
	return failed ? -EIO : 0;
}

void jfsnvj_free(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);

	if (!j)
		return;
	nvjk_mount_free(j->mount);
	kfree(j);
	JFS_SBI(sb)->nvj = NULL;
}
