// SPDX-License-Identifier: GPL-2.0
/*
 * Data of each live transaction: its number as ext4 knows it, and ext4's
 * callbacks. The engine uses numbers of 48 bits; ext4 keeps the low 32 bits.
 *
 * The slot of a transaction is tid mod NVJK_TRANSACTIONS. So it is reused eight
 * transactions later. When the last transaction of a commit is L, before_commit waits
 * until callbacks up to L - 4 were made. Until it is called again, at most three more
 * transactions are closed, and L + 4 is running.
 */
#include "journal.h"

void nvjk_transactions_init(struct nvjk_journal *j)
{
	unsigned int i;

	for (i = 0; i < NVJK_TRANSACTIONS; i++) {
		j->transactions[i].transaction.t_journal = &j->journal;
		INIT_LIST_HEAD(&j->transactions[i].transaction.t_private_list);
	}
}

/* The first handle of a transaction. */
void nvjk_transaction_begin(struct nvjk_journal *j, struct nvjk_transaction *t, u64 tid)
{
	write_lock(&j->journal.j_state_lock);
	if (t->tid != tid) {
		WARN_ON_ONCE(!list_empty(&t->transaction.t_private_list));
		t->transaction.t_tid = (tid_t)tid;
		t->transaction.t_state = T_RUNNING;
		if (tid > j->newest) {
			WRITE_ONCE(j->newest, tid);
			j->journal.j_running_transaction = &t->transaction;
		}
		/*
		 * A thread that sees the number also sees the rest, and newest
		 * is not smaller.
		 */
		smp_store_release(&t->tid, tid);
	}
	write_unlock(&j->journal.j_state_lock);
	/*
	 * Between newest and what this handle reads of ext4's memory. An older handle
	 * changes that memory, executes a full barrier, and reads newest (handle.c). So if
	 * this handle does not see all of its changes, the older handle sees newest.
	 */
	smp_mb();
}

struct nvjk_transaction *nvjk_transaction_find(struct nvjk_journal *j, u64 tid)
{
	struct nvjk_transaction *t = &j->transactions[tid % NVJK_TRANSACTIONS];

	return smp_load_acquire(&t->tid) == tid ? t : NULL;
}

u64 nvjk_tid(struct nvjk_journal *j, tid_t tid)
{
	u64 newest = READ_ONCE(j->newest);
	s32 ahead = (s32)(tid - (tid_t)newest);

	/*
	 * A number that was never set, or is 2^31 transactions old, may seem to
	 * be in the future.
	 */
	if (ahead >= 0)
		return newest;
	return newest > (u64) - (s64)ahead ? newest + (s64)ahead : 0;
}
