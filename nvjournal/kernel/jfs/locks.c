// SPDX-License-Identifier: GPL-2.0
/*
 * Whose lock a page has, and how another transaction waits for it.
 *
 * JFS has one spin lock, jfsTxnLock, for all transactions and all their locks of pages
 * (tlocks). Threads of a busy file system mostly wait for it. In jfsnvj nobody asks for it
 * to lock a page, to wait for one, or to release it:
 *
 * Who locks a page holds it (its metapage is locked; a root in an inode has the inode's
 * commit_mutex). So only this thread can enter a tlock in the page. Another thread may take
 * its own out meanwhile, when its transaction is logged or has ended, and only that. So a
 * page without a tlock keeps none, and a tlock that the page has after the number of its
 * transaction was read had this number.
 *
 * This order matters, because the tlock of another transaction may be freed between two
 * reads, and then be a linelock, which has other fields in the place of the number. Who
 * frees a tlock has taken it out of the page before.
 *
 * Tlocks without a transaction have the number 0. They are those of the thread's own inode.
 */
#include "journal.h"

lid_t jfsnvj_lock_of(const lid_t *entry, tid_t *owner)
{
	lid_t lid = smp_load_acquire(entry);

	if (!lid)
		return 0;
	*owner = READ_ONCE(lid_to_tlock(lid)->tid);
	smp_rmb();
	return smp_load_acquire(entry) == lid ? lid : 0;
}

void jfsnvj_wait_for_page(struct inode *ip, struct metapage *mp, lid_t lid, tid_t owner)
{
	struct tblock *tblk = tid_to_tblock(owner);
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	bool waits;

	add_wait_queue(&tblk->waitor, &wait);
	/* As in txRelease and txEnd: they see the wait, or this sees the page released. */
	smp_mb();
	/* As long as the owner has the page, its inode is in use; then RCU keeps it. */
	rcu_read_lock();
	waits = smp_load_acquire(&mp->lid) == lid;
	if (waits)
		jfsnvj_page_wait(ip->i_sb, READ_ONCE(tblk->nvj_inode));
	rcu_read_unlock();
	release_metapage(mp);
	if (waits) {
		wait_woken(&wait, TASK_UNINTERRUPTIBLE, MAX_SCHEDULE_TIMEOUT);
		jfsnvj_page_waited(ip->i_sb);
	}
	remove_wait_queue(&tblk->waitor, &wait);
}

/* Who finds the number of another transaction there sees that the page has another lock. */
void jfsnvj_clear_tlock(lid_t lid)
{
	smp_store_release(&lid_to_tlock(lid)->tid, 0);
}
