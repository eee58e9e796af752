/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A mount whose journal is in a region, whatever its file system is:
 *
 * 	options.c	our mount options
 * 	region.c	opens or refuses the region of a mount; formats it
 * 	shrink.c	frees memory of the journal when the kernel needs it
 * 	statistics.c	counters of the journal, as text
 *
 * Messages begin with the module's label and the disk's name.
 */
#ifndef NVJK_MOUNT_H
#define NVJK_MOUNT_H

#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/seq_file.h>

#include "../../core/lock.h"
#include "../platform/platform.h"

/* Our mount options, as given. */
struct nvjk_mount_options {
	char *journal_path;      /* of the pmem device; kmalloc'ed, or NULL */
	u64 journal_offset;      /* bytes, of the region in the device */
	u64 journal_size;        /* bytes; 0: as long as it was formatted */
	unsigned int partitions; /* 1..64; 0: as the region was formatted */
	unsigned int placement;  /* enum nvj_placement; 0: as the region was formatted */
	bool whole_blocks;       /* records=blocks: each record has all lines, for comparison */
	bool one_lock;           /* lock=one: one lock for the journal, for comparison */
	bool log_at_handle;      /* log=handle: each handle logs, for comparison */
	bool journal_small;      /* journal_data=small: small files' data, too; only of ext4nvj */
	bool allow_volatile;     /* memory that may lose what is committed will do */
	bool given_offset, given_size, given_partitions, given_placement, given_records;
	bool given_lock, given_data, given_log;
};

/* Our data of a mount. */
struct nvjk_mount {
	struct nvjk_mount_options options; /* with the number of partitions that there are */
	struct nvjk_region *region;
	u8 uuid[16];    /* of the region's journal */
	u64 mark_block; /* of the disk: where each checkpoint writes the journal's tail */
};

/* What the disk's superblock says. */
struct nvjk_disk_identity {
	const u8 *uuid;         /* of the disk */
	bool marked;            /* it needs recovery from a region */
	const u8 *journal_uuid; /* if marked: of that region's journal */
	u64 mark_block;         /* if marked: of the mark of the tail; 0: there is none */
};

/* Logs a message about a mount. sb may be NULL. */
__printf(3, 4) void nvjk_say(const struct super_block *sb, const char *level, const char *format,
			     ...);

/* --- options.c ---------------------------------------------------------------- */

/* Returns 0; -ENOPARAM: it is not one of ours; another error, which is logged. */
int nvjk_parse_option(struct nvjk_mount_options *options, struct fs_parameter *param);
/* Shown in /proc/mounts, after those of the file system. */
void nvjk_show_options(struct seq_file *seq, const struct nvjk_mount *mount);
/* The name of an option that a remount asks to change. NULL: none. */
const char *nvjk_changed_option(const struct nvjk_mount_options *now,
				const struct nvjk_mount_options *asked);

/* --- region.c ----------------------------------------------------------------- */

/* Logs each damaged place. */
void nvjk_say_findings(const struct super_block *sb, const struct nvj_report *report);
/* Logs that recovery is refused, because nvjk_disk_drop_cache returned this error. */
void nvjk_say_cache_in_use(const struct super_block *sb, int error);
/*
 * Opens mount->region and reads its superblock. Returns 0, or the reason why it
 * cannot be used, which is logged.
 */
int nvjk_mount_open_region(struct super_block *sb, struct nvjk_mount *mount,
			   struct nvj_disk_super *super);
/*
 * Returns 0 if region and disk belong together. Otherwise NVJ_EMEDIUM,
 * NVJ_EUCLEAN..., which is logged.
 */
int nvjk_mount_check_region(struct super_block *sb, const struct nvjk_mount *mount,
			    const struct nvj_disk_super *super,
			    const struct nvjk_disk_identity *disk);
/*
 * Makes a new, empty journal in the region, with a new UUID, for the disk with
 * this one.
 */
int nvjk_mount_format(struct super_block *sb, struct nvjk_mount *mount, const u8 *disk_uuid);
/* Closes the region and frees all. */
void nvjk_mount_free(struct nvjk_mount *mount);

/* --- shrink.c ------------------------------------------------------------------ */

struct nvjk_shrinker;
/* From now on the kernel can ask the journal of a disk with this name for memory. */
int nvjk_shrinker_start(struct nvjk_shrinker **shrinker, struct nvj *nvj, const char *name);
void nvjk_shrinker_stop(struct nvjk_shrinker *shrinker);

/* --- statistics.c --------------------------------------------------------------- */

/*
 * How long the lock of lock=one was held, with NVJ_LOCK_TIMES (core/lock.h). The owner
 * of the lock changes it. Otherwise it is empty.
 */
struct nvjk_holds {
#ifdef NVJ_LOCK_TIMES
	u64 since, count, ticks, longest;
#endif
};

static inline void nvjk_hold_begins(struct nvjk_holds *holds)
{
#ifdef NVJ_LOCK_TIMES
	holds->since = nvj_ticks();
#endif
}

static inline void nvjk_hold_ends(struct nvjk_holds *holds)
{
#ifdef NVJ_LOCK_TIMES
	u64 ticks = nvj_ticks_between(holds->since, nvj_ticks());

	holds->count++;
	holds->ticks += ticks;
	holds->longest = max(holds->longest, ticks);
#endif
}

/* The counters that each file system has; 0 where it has none. */
struct nvjk_statistics {
	struct nvj_statistics engine;
	struct nvjk_disk_counts disk;
	struct nvjk_persist_counts region;
	u64 pinned_buffers;     /* now */
	u64 pinned_all_mounts;  /* now, by all journals */
	u64 max_pinned_buffers; /* of all journals */
	u64 images_bytes;       /* now: copies of blocks */
	u64 data_flushes;       /* of the disk, before commits */
	u64 data_inodes;        /* files whose data was written or waited for, by commits */
	/* Of the lock of lock=one, as the engine has them of its own locks. */
	u64 one_holds, one_hold_ns, one_longest_ns;
};
/* Nearly exact while handles are open. Begins a new longest hold. */
void nvjk_read_holds(struct nvjk_holds *holds, const struct nvj *nvj,
		     struct nvjk_statistics *statistics);
void nvjk_show_statistics(struct seq_file *seq, const struct nvjk_mount *mount,
			  const struct nvjk_statistics *statistics);

#endif
