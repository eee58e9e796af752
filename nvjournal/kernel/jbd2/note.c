// SPDX-License-Identifier: GPL-2.0
/*
 * The buffers that a handle has changed. ext4 reports each change, at any time
 * between access and stop. Each buffer is logged once, with the content that it
 * has when the handle stops. Unless the option log=handle was given, the engine
 * may write the record later, when the transaction commits or before a handle of
 * a later transaction gets access to the buffer. Then a buffer that many handles
 * change is logged once.
 *
 * This is correct although other handles may change the same buffer meanwhile:
 * each of them has accessed the buffer, and logs it when it stops. If one of
 * them belongs to a later transaction, the engine sees its access, and both
 * transactions commit together.
 */
#include "journal.h"
#include "trace.h"

static void grow(struct nvjk_handle *h)
{
	size_t most = (h->end - h->note) * 4, have = h->next - h->note;
	struct nvjk_buffer **note = kmalloc_array(most, sizeof(*note), GFP_NOFS | __GFP_NOFAIL);

	memcpy(note, h->note, have * sizeof(*note));
	if (h->note != h->first_notes)
		kfree(h->note);
	h->note = note;
	h->next = note + have;
	h->end = note + most;
}

/*
 * The last one first: ext4 often reports the same one again. The address of b alone is
 * used, and nothing is stored in b: other processors read that line for each access.
 */
static inline struct nvjk_buffer **find(const struct nvjk_handle *h, const struct nvjk_buffer *b)
{
	struct nvjk_buffer **note = h->next;

	while (note != h->note)
		if (*--note == b)
			return note;
	return NULL;
}

bool nvjk_noted(const struct nvjk_handle *h, struct buffer_head *bh)
{
	struct nvjk_buffer *b = nvjk_buffer_of(bh);

	/* Only then it is certain that b stays. */
	return find(h, b) && !READ_ONCE(b->forgotten);
}

static inline void put(struct nvjk_handle *h, struct nvjk_buffer *b)
{
	h->handle.h_buffer_credits--;
	*h->next++ = b;
}

/* In a function of its own, so that the other one needs no stack. */
static noinline int put_slowly(struct nvjk_handle *h, struct nvjk_buffer *b)
{
	if (WARN_ON_ONCE(h->handle.h_buffer_credits <= 0))
		return -ENOSPC; /* more blocks than it requested */
	grow(h);
	put(h, b);
	return 0;
}

/* ext4 calls it for each change of a block: it is here for the compiler to inline the rest. */
int jbd2_journal_dirty_metadata(handle_t *handle, struct buffer_head *bh)
{
	struct nvjk_handle *h = nvjk_handle_of(handle);
	struct journal_head *jh;
	struct nvjk_buffer *b;

	if (is_handle_aborted(handle))
		return -EROFS;
	/* This handle has accessed the buffer. So its data stay, and no flag need be read. */
	jh = READ_ONCE(bh->b_private);
	if (WARN_ON_ONCE(!jh))
		return -EUCLEAN;
	b = container_of(jh, struct nvjk_buffer, head);
	if (find(h, b))
		return 0;
	if (unlikely(h->handle.h_buffer_credits <= 0 || h->next == h->end))
		return put_slowly(h, b);
	put(h, b);
	return 0;
}

void nvjk_note_drop(struct nvjk_handle *h, struct nvjk_buffer *b)
{
	struct nvjk_buffer **note = find(h, b);

	if (note)
		*note = *--h->next;
}

/*
 * Under the buffer's lock, because a trigger changes the content and the result
 * is logged.
 */
static int log_buffer(struct nvjk_journal *j, struct nvjk_handle *h, struct nvjk_buffer *b)
{
	struct buffer_head *bh = b->head.b_bh;
	struct jbd2_buffer_trigger_type *trigger = b->head.b_triggers;
	u64 mask = j->mask;

	if (trigger && trigger->t_frozen)
		trigger->t_frozen(trigger, bh, bh->b_data, bh->b_size);
	/*
	 * ext4 also writes its superblock without the journal. A replayed
	 * superblock must be complete, because it has a checksum.
	 */
	if (bh->b_blocknr == 0)
		mask = NVJ_ALL_LINES;
	if (unlikely(b->data))
		return nvj_log_data(&h->nvj, bh->b_blocknr, bh->b_data, mask);
	return nvj_log(&h->nvj, bh->b_blocknr, bh->b_data, mask);
}

/*
 * Its record may be written later. It is not if its content depends on more than
 * handles: file data are changed by processes that have mapped them, and brought
 * home; ext4 writes its superblock without the journal; a trigger changes the
 * content as it is logged.
 */
static bool can_wait(const struct nvjk_journal *j, const struct nvjk_buffer *b)
{
	return j->later && !b->data && !b->head.b_triggers && b->head.b_bh->b_blocknr != 0;
}

static int log_later(struct nvjk_journal *j, struct nvjk_handle *h, struct nvjk_buffer *b)
{
	struct buffer_head *bh = b->head.b_bh;
	u32 before = h->nvj.later;
	int lines = nvj_log_later(&h->nvj, bh->b_blocknr, bh->b_data);

	/* It did not wait before. */
	if (h->nvj.later != before) {
		trace_jbd2nvj_log_later(j->journal.j_fs_dev->bd_dev, h->nvj.tid, bh->b_blocknr);
		nvj_known_will_log(&b->known, h->nvj.tid);
	}
	return lines;
}

void nvjk_note_log(struct nvjk_handle *h, struct nvjk_buffer *b)
{
	struct nvjk_journal *j = nvjk_of(h->handle.h_journal);
	struct buffer_head *bh = b->head.b_bh;
	int lines = 0;

	mutex_lock(&b->lock);
	/* Another handle may have done it while this one waited for the lock. */
	if (!b->forgotten && !nvjk_waits(b, h->nvj.tid)) {
		nvjk_lock_one(j);
		lines = can_wait(j, b) ? log_later(j, h, b) : log_buffer(j, h, b);
		nvjk_unlock_one(j);
	}
	mutex_unlock(&b->lock);
	if (lines > 0 && !buffer_req(bh))
		/* From now on the journal has all of it: see home_is_known. */
		set_buffer_req(bh);
	if (lines < 0 && lines != NVJ_EROFS) {
		pr_err("EXT4NVJ-fs (%s): block %llu cannot be journaled: %s (%d); handle of type "
		       "%u, line %u, asked for %u blocks\n",
		       j->name, (unsigned long long)bh->b_blocknr, nvj_strerror(lines), lines,
		       h->handle.h_type, h->handle.h_line_no, h->handle.h_requested_credits);
		jbd2_journal_abort(&j->journal, lines);
	}
}

void nvjk_notes_free(struct nvjk_handle *h)
{
	kfree(h->note);
	nvjk_notes_init(h);
}
