// SPDX-License-Identifier: GPL-2.0
/*
 * The file system comes to rest: at an umount, a remount read-only, a freeze, and before
 * JFS extends it. And how it becomes read-only after an error.
 *
 * JFS sets SB_RDONLY at once, whatever else happens to the file system. But the kernel
 * skips a file system that is read-only when it freezes or thaws: neither jfs_freeze nor
 * jfs_unfreeze is called, and a thaw does not let the writers go on that the freeze holds
 * up. They and an umount would wait for ever. So the flag is set only by who knows that
 * the file system is not frozen: with s_umount, which a freeze takes before it begins and
 * before it ends. If that lock is not free, the commit thread tries again.
 */
#include <linux/delay.h>

#include "journal.h"
#include "jfs_dmap.h"
#include "jfs_imap.h"

/* It waits longer than so many seconds only with a message. */
#define LATE 5

/* --- Read-only ----------------------------------------------------------------------- */

bool jfsnvj_is_aborted(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);

	return j && READ_ONCE(j->aborted);
}

void jfsnvj_becomes_read_only(struct super_block *sb)
{
	WRITE_ONCE(jfsnvj_of(sb)->wants_read_only, true);
	/* It is being mounted: nobody can freeze it, and the journal may not be open. */
	if (!(sb->s_flags & SB_BORN)) {
		sb->s_flags |= SB_RDONLY;
		return;
	}
	/* Without waiting: the caller may have the lock. */
	if (!down_read_trylock(&sb->s_umount))
		return;
	if (sb->s_writers.frozen == SB_UNFROZEN)
		sb->s_flags |= SB_RDONLY;
	up_read(&sb->s_umount);
}

void jfsnvj_is_read_only_now(struct jfsnvj *j)
{
	if (READ_ONCE(j->wants_read_only))
		j->sb->s_flags |= SB_RDONLY;
}

/* --- Rest ---------------------------------------------------------------------------- */

/* Says whether each write of JFS since it is at rest has succeeded. */
static bool is_written(const struct jfsnvj *j)
{
	return atomic_read(&j->failed_writes) == j->failed_before_rest;
}

int jfsnvj_write_maps(struct jfsnvj *j)
{
	struct jfs_sb_info *sbi = JFS_SBI(j->sb);
	int error;

	error = dbSync(sbi->ipbmap);
	error = diSync(sbi->ipimap) ?: error;
	error = filemap_write_and_wait(sbi->ipbmap->i_mapping) ?: error;
	error = filemap_write_and_wait(sbi->ipimap->i_mapping) ?: error;
	error = filemap_write_and_wait(sbi->direct_inode->i_mapping) ?: error;
	return is_written(j) ? error : -EIO;
}

/*
 * The disk stays marked, and recovery makes the maps anew. What the pages have is dropped
 * at the umount, and not before: until then the files can be read.
 */
static void give_up_rest(struct jfsnvj *j, bool unmounting)
{
	nvjk_say(j->sb, KERN_ERR, "the maps of the file system cannot be written");
	WRITE_ONCE(j->at_rest, false);
	nvj_abort(j->nvj, -EIO);
	if (unmounting)
		WRITE_ONCE(j->ending, true);
}

void jfsnvj_check_rest(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);

	if (!READ_ONCE(j->aborted) && !(READ_ONCE(j->at_rest) && is_written(j)))
		give_up_rest(j, true);
}

static bool have_ended(struct jfsnvj *j)
{
	return list_empty(&j->log.cqueue) && !atomic_read(&j->log.active) &&
	       !(READ_ONCE(JFS_SBI(j->sb)->commit_state) & IN_LAZYCOMMIT);
}

/*
 * JFS's lazy commit threads read pages of the maps when they end a transaction, which
 * takes as long as the disk does. They use what an umount frees, so it waits for them.
 */
static void end_transactions(struct jfsnvj *j)
{
	unsigned long late = jiffies + LATE * HZ;
	bool said = false;

	for (;;) {
		(void)jfsnvj_commit(j, 0);
		if (have_ended(j))
			return;
		if (!said && time_after(jiffies, late)) {
			nvjk_say(j->sb, KERN_WARNING,
				 "transactions have not ended after %d seconds; waiting for them",
				 LATE);
			said = true;
		}
		usleep_range(1000, 10000);
	}
}

void jfsnvj_come_to_rest(struct jfsnvj *j, bool unmounting)
{
	end_transactions(j);
	if (jfsnvj_checkpoint(j)) {
		if (unmounting)
			WRITE_ONCE(j->ending, true);
		return;
	}
	j->failed_before_rest = atomic_read(&j->failed_writes);
	WRITE_ONCE(j->at_rest, true);
	if (jfsnvj_write_maps(j))
		give_up_rest(j, unmounting);
}

/*
 * jfs_sync has a reference to an inode, and none to the file system. An umount that found the
 * inode in use would free what belongs to it all the same.
 */
void jfsnvj_kill_super(struct super_block *sb)
{
	jfsnvj_wait_for_sync(sb);
	kill_block_super(sb);
}

/* --- Removals ------------------------------------------------------------------------ */

/*
 * Who drops the last reference to a file without a name removes it: its blocks and its inode are
 * free in the working maps, and an empty extent of inodes is removed by a transaction. The
 * kernel does not count that as a change, for which a freeze would wait, nor does JFS. So this
 * does, as ext4 does it.
 *
 * Most references are dropped by a lazy commit thread, when it ends the transaction of the last
 * name. It must not wait: a freeze and an extension wait for it (end_transactions). Nor must the
 * thread that extends the file system: it commits inodes before it does that.
 */
bool jfsnvj_removal_begins(struct super_block *sb)
{
	const struct jfsnvj *j = jfsnvj_of(sb);

	if (READ_ONCE(j->ends_lazily) == current || READ_ONCE(j->extends) == current)
		return false;
	sb_start_intwrite(sb);
	return true;
}

void jfsnvj_removal_ends(struct super_block *sb)
{
	sb_end_intwrite(sb);
}

void jfsnvj_ends_lazily(struct jfs_sb_info *sbi, bool begins)
{
	WRITE_ONCE(sbi->nvj->ends_lazily, begins ? current : NULL);
}

/* --- Freeze -------------------------------------------------------------------------- */

/* The file system is frozen: the disk alone has all. */
int lmLogShutdown(struct jfs_log *log)
{
	struct jfsnvj *j = log->nvj;

	jfsnvj_come_to_rest(j, false);
	if (READ_ONCE(j->at_rest))
		return 0;
	/* The freeze ends with this error, and lets the writers go on. */
	jfsnvj_is_read_only_now(j);
	return -EIO;
}

int lmLogInit(struct jfs_log *log)
{
	WRITE_ONCE(log->nvj->at_rest, false);
	return 0;
}

void jfsnvj_thaw(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);

	/* If this returned an error, the kernel would leave the file system frozen. */
	if (!READ_ONCE(j->aborted) && updateSuper(sb, FM_MOUNT)) {
		nvjk_say(sb, KERN_ERR,
			 "the disk cannot be marked: it has all, and can be mounted again");
		nvj_abort(j->nvj, -EIO);
	}
	(void)lmLogInit(&j->log);
	/* The thaw lets the writers go on all the same. */
	jfsnvj_is_read_only_now(j);
}
