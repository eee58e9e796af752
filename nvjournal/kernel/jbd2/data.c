// SPDX-License-Identifier: GPL-2.0
/*
 * File data in the journal (ext4/small.c). The buffers are like others, but
 * belong to pages of a file. Processes that have mapped them, and the zeroing
 * of a truncated end, change these pages without a handle. And the pages can be
 * freed while a handle that has noted them is open.
 */
#include <linux/pagemap.h>
#include <linux/sched/mm.h>

#include "journal.h"

static struct folio *folio_of(const struct buffer_head *bh)
{
	return page_folio(bh->b_page);
}

/*
 * If it belongs to a file, the caller has locked the folio, so the folio has
 * its mapping.
 */
bool nvjk_is_data(const struct buffer_head *bh)
{
	const struct address_space *mapping = folio_of(bh)->mapping;

	return mapping && !S_ISBLK(mapping->host->i_mode);
}

/*
 * Called when the file was truncated or is deleted, before its blocks are
 * freed, or when they are at home already. A handle that has changed the page
 * may still be open. It would log the page after the revoke of the block, and
 * recovery would replay that over the data of the block's next owner.
 */
static void forget(struct nvjk_journal *j, struct buffer_head *bh)
{
	struct nvjk_buffer *b = nvjk_hold(bh);

	if (!b)
		return;
	mutex_lock(&b->lock);
	b->forgotten = true;
	mutex_unlock(&b->lock);
	nvjk_let_go(j, b);
}

/* The folio is locked. */
int jbd2_journal_invalidate_folio(journal_t *journal, struct folio *folio, size_t offset,
				  size_t length)
{
	struct buffer_head *head = folio_buffers(folio), *bh = head;

	if (head && offset == 0 && length == folio_size(folio))
		do {
			forget(nvjk_of(journal), bh);
			bh = bh->b_this_page;
		} while (bh != head);
	block_invalidate_folio(folio, offset, length);
	return 0;
}

/* A buffer that is not at home has a reference, and cannot be freed. */
bool jbd2_journal_try_to_free_buffers(journal_t *journal, struct folio *folio)
{
	return try_to_free_buffers(folio);
}

int jbd2_journal_bring_home(journal_t *journal, const u64 *blocks, unsigned int count)
{
	unsigned int nofs = memalloc_nofs_save();
	int error = nvj_bring_home(nvjk_of(journal)->nvj, blocks, count, false);

	memalloc_nofs_restore(nofs);
	if (error == NVJ_EAGAIN)
		return -EAGAIN;
	return error ? -EIO : 0;
}

void jbd2_journal_leave(journal_t *journal, struct buffer_head *bh)
{
	nvjk_unpin(nvjk_of(journal), bh);
}

/*
 * As put_bh, for a buffer whose folio may have been removed from its file
 * meanwhile.
 */
void nvjk_data_put(struct buffer_head *bh)
{
	struct folio *folio = folio_of(bh);

	folio_get(folio);
	put_bh(bh);
	if (!READ_ONCE(folio->mapping) && folio_trylock(folio)) {
		if (!folio->mapping)
			try_to_free_buffers(folio);
		folio_unlock(folio);
	}
	folio_put(folio);
}
