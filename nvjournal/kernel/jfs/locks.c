// SPDX-License-Identifier: GPL-2.0
/*
 * JFS has one spin lock, jfsTxnLock, for all transactions and all their locks of pages
 * (tlocks). Threads of a busy file system mostly wait for it. This file and edits of
 * jfs_txnmgr.c ask for it less often.
 *
 * A transaction locks the same page many times: a page of a directory's table each time
 * that an entry moves. Then the page has the number of a tlock that has the number of the
 * transaction. Only the thread of the transaction makes this so: it takes the tlock from
 * the list of free ones, and enters it in the page. Only this thread ends it, before the
 * transaction's number is free again: a lazy commit thread gets the transaction after the
 * last lock. So what this thread reads here without jfsTxnLock is what it would read with
 * it. Whatever else it reads is not its own, or is about to change: then it asks again,
 * with jfsTxnLock.
 *
 * The tlock of another transaction may be freed between two reads here, and be a linelock
 * then, which has other fields in the place of the transaction's number. So the number
 * counts only if the page still has the tlock after it was read. While the caller holds
 * the page, no transaction can enter that tlock again.
 *
 * Tlocks without a transaction, which have the number 0, are not meant here: other threads
 * take them over.
 */
#include "journal.h"

struct tlock *jfsnvj_own_lock(tid_t tid, struct inode *ip, struct metapage *mp, int type)
{
	const lid_t *of = &mp->lid;
	struct tlock *tlck;
	lid_t lid;

	/* A directory's root of an extent tree has a tlock besides that of its entries. */
	if (S_ISDIR(ip->i_mode) && type & tlckXTREE && !(mp->xflag & COMMIT_PAGE))
		of = &JFS_IP(ip)->xtlid;
	lid = READ_ONCE(*of);
	if (!tid || !lid)
		return NULL;
	tlck = lid_to_tlock(lid);
	if (READ_ONCE(tlck->tid) != tid)
		return NULL;
	/* Who frees a tlock has taken it from the page before, under jfsTxnLock. */
	smp_rmb();
	return READ_ONCE(*of) == lid ? tlck : NULL;
}
