/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What a caller of nvj_log_later knows of a block. With it a handle need not call
 * the engine for a block that another handle of its transaction has accessed, or
 * whose change already waits for the commit. The engine itself does not use it.
 *
 * A handle of a later transaction may access the block at any time. From then on it
 * may be that the engine has written the record of the earlier transaction. So the
 * handle of the earlier transaction that has changed the block must log it. Each of
 * the two stores something and then reads what the other one stores:
 *
 * 	earlier: changes the block; full barrier; reads newest_tid (nvj_known_waits)
 * 	later: raises newest_tid; full barrier; nvj_access, which reads the block
 *
 * So either the earlier handle sees the later transaction, or what the engine logs
 * has its change.
 */
#ifndef NVJ_KNOWN_H
#define NVJ_KNOWN_H

#include "atomic.h"

/* Numbers of transactions. All are atomic; the caller has a lock for newest_tid. */
struct nvj_known {
	uint64_t newest_tid;   /* the newest one that accessed or freed it, or does so now */
	uint64_t accessed_tid; /* of the last handle whose access is complete; 0: none */
	uint64_t waits_tid;    /* of the last handle whose change waits; 0: none */
};

/*
 * Called before nvj_access, nvj_create and nvj_revoke, with the lock. True: the caller
 * executes a full barrier before it calls the engine.
 */
static inline bool nvj_known_begins(struct nvj_known *k, uint64_t tid)
{
	if (nvj_load(&k->newest_tid) >= tid)
		return false;
	nvj_store(&k->newest_tid, tid);
	return true;
}

/* nvj_access or nvj_create has returned. */
static inline void nvj_known_has_access(struct nvj_known *k, uint64_t tid)
{
	nvj_store_release(&k->accessed_tid, tid);
}

/* nvj_log_later has returned, and the change waits. */
static inline void nvj_known_will_log(struct nvj_known *k, uint64_t tid)
{
	nvj_store_release(&k->waits_tid, tid);
}

/* Called before nvj_revoke. */
static inline void nvj_known_forget(struct nvj_known *k)
{
	nvj_store(&k->accessed_tid, 0);
	nvj_store(&k->waits_tid, 0);
}

/*
 * True: a handle of tid, which is open, may change the block without nvj_access. No
 * barrier is needed: if a later transaction begins now, nvj_known_waits sees it when
 * the block is changed.
 */
static inline bool nvj_known_accessed(const struct nvj_known *k, uint64_t tid)
{
	return nvj_load_acquire(&k->accessed_tid) == tid && nvj_load(&k->newest_tid) == tid;
}

/*
 * True: an open handle of tid, which has changed the block and has then executed a
 * full barrier, need not log it.
 */
static inline bool nvj_known_waits(const struct nvj_known *k, uint64_t tid)
{
	return nvj_load_acquire(&k->waits_tid) == tid && nvj_load(&k->newest_tid) == tid;
}

#endif
