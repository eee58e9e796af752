// SPDX-License-Identifier: GPL-2.0
/*
 * A block in a handle: before its first change, and when it is freed. note.c has
 * its changes.
 */
#include "journal.h"

/*
 * The engine logs the difference to the content at home, so that content must
 * be known. It is known if the buffer was read from the disk or written by the
 * journal (BH_Req). But ext4 does not read the bitmap of a group that was never
 * used, or a block of the inode table without inodes: it fills the buffer
 * itself. Then all of it is logged, as for a new block.
 */
static bool home_is_known(struct buffer_head *bh)
{
	bool dirty;

	if (likely(!buffer_dirty(bh)))
		return buffer_req(bh);
	/*
	 * The buffer was written without the journal, and is not on the disk
	 * yet. That write must not reach the disk after what is logged now. A
	 * write in progress holds the buffer's lock.
	 */
	lock_buffer(bh);
	dirty = test_clear_buffer_dirty(bh);
	unlock_buffer(bh);
	return !dirty && buffer_req(bh);
}

/*
 * This handle or another one of the transaction has accessed the block, and no later
 * transaction has. So the engine has nothing to do, and need not search the block.
 *
 * The data of the buffer may be let go of meanwhile. They remain readable, and have no
 * number of a transaction then. What has the number of an open transaction is not let
 * go of.
 */
static bool was_accessed(const struct nvjk_handle *h, const struct buffer_head *bh)
{
	const unsigned long wanted = BIT(BH_JBD) | BIT(BH_Req), unwanted = BIT(BH_Dirty);
	const struct journal_head *jh;
	const struct nvjk_buffer *b;
	bool was = false;

	if ((READ_ONCE(bh->b_state) & (wanted | unwanted)) != wanted)
		return false;
	/* It costs less than rcu_read_lock, and RCU waits for this, too. */
	rcu_read_lock_sched();
	jh = READ_ONCE(bh->b_private);
	if (likely(jh)) {
		b = container_of(jh, struct nvjk_buffer, head);
		was = nvj_known_accessed(&b->known, h->nvj.tid) && !READ_ONCE(b->forgotten);
	}
	rcu_read_unlock_sched();
	return was;
}

static int access(handle_t *handle, struct buffer_head *bh, bool create)
{
	struct nvjk_journal *j;
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct nvjk_buffer *b;
	int error;

	if (is_handle_aborted(handle))
		return -EROFS;
	if (WARN_ON_ONCE(bh->b_size != NVJ_BLOCK_BYTES))
		return -EINVAL;
	j = nvjk_of(handle->h_journal);
	b = nvjk_pin(j, bh, h->nvj.tid);
	if (create)
		clear_buffer_dirty(bh);
	nvjk_lock_one(j);
	if (create || unlikely(!home_is_known(bh)))
		error = nvj_create(&h->nvj, bh->b_blocknr);
	else
		error = nvj_access(&h->nvj, bh->b_blocknr, b->data ? NULL : bh->b_data);
	nvjk_unlock_one(j);
	if (!error && !j->one_lock)
		nvj_known_has_access(&b->known, h->nvj.tid);
	if (unlikely(READ_ONCE(b->forgotten)) && !error) {
		/*
		 * The block is allocated again: the freeing transaction has
		 * committed, or it is the same one.
		 */
		mutex_lock(&b->lock);
		b->forgotten = false;
		mutex_unlock(&b->lock);
	}
	return error;
}

static noinline int access_slowly(handle_t *handle, struct buffer_head *bh)
{
	return nvjk_noted(nvjk_handle_of(handle), bh) ? 0 : access(handle, bh, false);
}

int jbd2_journal_get_write_access(handle_t *handle, struct buffer_head *bh)
{
	if (is_handle_aborted(handle))
		return -EROFS;
	/* ext4 asks several times, as for an inode at each change of it. */
	if (likely(was_accessed(nvjk_handle_of(handle), bh)))
		return 0;
	return access_slowly(handle, bh);
}

int jbd2_journal_get_create_access(handle_t *handle, struct buffer_head *bh)
{
	int error = access(handle, bh, true);

	if (!error)
		nvjk_buffer_of(bh)->head.b_triggers = NULL;
	return error;
}

/* An open handle of the caller has accessed the buffer. */
void jbd2_journal_set_triggers(struct buffer_head *bh, struct jbd2_buffer_trigger_type *type)
{
	struct nvjk_buffer *b = nvjk_buffer_of(bh);

	if (!WARN_ON_ONCE(!b))
		WRITE_ONCE(b->head.b_triggers, type);
}

/*
 * Other handles may have noted the block, and must not log it after the revoke.
 * Such a handle may still be open, although it does not need the block any
 * more. The lock orders their logging and the revoke.
 */
static int revoke(struct nvjk_journal *j, struct nvjk_handle *h, u64 block, struct buffer_head *bh)
{
	struct nvjk_buffer *b = NULL;
	int error;

	if (bh) {
		/* Pinned as if it was accessed, so that it is not freed. */
		b = nvjk_pin(j, bh, h->nvj.tid);
		mutex_lock(&b->lock);
		nvjk_note_drop(h, b);
		nvj_known_forget(&b->known);
	}
	nvjk_lock_one(j);
	error = nvj_revoke(&h->nvj, block);
	nvjk_unlock_one(j);
	if (b) {
		b->forgotten = true;
		b->head.b_triggers = NULL;
		/*
		 * The content is invalid. For the next user of the block, the
		 * content at home is unknown.
		 */
		clear_buffer_dirty(bh);
		clear_buffer_req(bh);
		clear_buffer_verified(bh);
		mutex_unlock(&b->lock);
	}
	if (!error)
		h->handle.h_revoke_credits--;
	return error;
}

/* Releases the caller's reference to bh, which may be NULL. */
int jbd2_journal_revoke(handle_t *handle, unsigned long long block, struct buffer_head *bh)
{
	struct nvjk_journal *j;
	struct buffer_head *found = bh;
	int error;

	might_sleep();
	if (is_handle_aborted(handle)) {
		brelse(bh);
		return -EROFS;
	}
	j = nvjk_of(handle->h_journal);
	if (!found)
		found = __find_get_block(j->journal.j_fs_dev, block, NVJ_BLOCK_BYTES);
	if (found && !buffer_jbd(found)) {
		/*
		 * It is at home, or was never journaled: no other handle can
		 * log it.
		 */
		clear_buffer_dirty(found);
		clear_buffer_req(found);
		error = revoke(j, nvjk_handle_of(handle), block, NULL);
	} else {
		error = revoke(j, nvjk_handle_of(handle), block, found);
	}
	brelse(found);
	return error;
}

/*
 * The same for a block that may not have been journaled. ext4 has no credits
 * for its revoke.
 */
int jbd2_journal_forget(handle_t *handle, struct buffer_head *bh)
{
	if (!is_handle_aborted(handle) && buffer_jbd(bh))
		return jbd2_journal_revoke(handle, bh->b_blocknr, bh);
	clear_buffer_dirty(bh);
	brelse(bh);
	return 0;
}
