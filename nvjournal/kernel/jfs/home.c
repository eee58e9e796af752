// SPDX-License-Identifier: GPL-2.0
/*
 * Which metapages JFS writes home itself.
 *
 * The engine writes logged pages home. JFS must not write such a page: before its
 * transaction is committed that would be too early, and later the engine may write
 * an older version after it. So the page stays dirty in memory until the journal's
 * tail has passed its newest transaction. Then it is at home, and clean.
 *
 * A page of a map stays dirty until the file system is at rest: the engine's
 * version at home has an old working map. JFS itself writes these pages at umount,
 * after the journal has ended.
 *
 * Pages that were never logged are JFS's own: of extended attributes and of long
 * symbolic links, which it writes before it commits. So are pages whose block was
 * freed, from the commit on: the engine writes no version of them any more. Such a
 * block may have an attribute or a link now, or a page of the extent tree of a file
 * that is open and has no name: JFS changes that one without a transaction.
 */
#include "journal.h"
#include "trace.h"

bool jfsnvj_is_map(const struct metapage *mp)
{
	const struct jfs_sb_info *sbi = JFS_SBI(mp->sb);
	const struct inode *host = jfsnvj_host(mp);

	return host == sbi->ipbmap || host == sbi->ipimap || host == sbi->ipaimap ||
	       host == sbi->ipaimap2;
}

bool jfsnvj_keeps(struct metapage *mp, int *redirty)
{
	struct jfsnvj *j = jfsnvj_of(mp->sb);

	if (!j)
		return false;
	/* Also after a remount read-only that failed, and has closed the journal. */
	if (READ_ONCE(j->aborted)) {
		/* The region has what is committed; the rest is lost. */
		if (READ_ONCE(j->ending))
			clear_bit(META_dirty, &mp->flag);
		else
			*redirty = 1;
		return true;
	}
	if (!j->nvj || READ_ONCE(j->at_rest))
		return false;
	if (mp->nohomeok) {
		*redirty = 1;
		jfsnvj_thread_commit(j);
		return true;
	}
	if (jfsnvj_is_map(mp)) {
		*redirty = 1;
		return true;
	}
	if (mp->nvj_revoked && mp->nvj_tid <= nvj_committed(j->nvj))
		return false;
	if (!mp->nvj_tid)
		return false;
	if (mp->nvj_tid > nvj_tail(j->nvj)) {
		*redirty = 1;
		jfsnvj_thread_checkpoint(j);
		return true;
	}
	clear_bit(META_dirty, &mp->flag);
	return true;
}

void jfsnvj_writes_home(struct super_block *sb, s64 block, struct bio *bio)
{
	trace_jfsnvj_write_home(sb->s_dev, block, bio);
}

void jfsnvj_write_failed(struct super_block *sb)
{
	struct jfsnvj *j = jfsnvj_of(sb);

	if (j)
		atomic_inc(&j->failed_writes);
}

bool jfsnvj_holds(const struct metapage *mp)
{
	struct jfsnvj *j = jfsnvj_of(mp->sb);

	return j && j->nvj && !READ_ONCE(j->ending) && !READ_ONCE(j->at_rest) &&
	       mp->nvj_tid > nvj_tail(j->nvj);
}
