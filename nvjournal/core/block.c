/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The table of blocks. Each partition has chains of entries by the hash of the
 * block number. A search takes no lock. Entries are never freed, but they are
 * reused for other blocks. So a search without a lock may continue in another
 * chain. Therefore an entry that was found is checked again under its lock. If
 * none was found, the search is repeated under the lock of the bucket.
 *
 * A clean entry that no open transaction has accessed may be evicted. When a
 * new entry is made and there are many, a clock hand examines the next few
 * entries, in the order of the slabs. So an entry needs no list of all entries,
 * whose change would move the lines of its neighbours to this processor.
 *
 * With rings by processor, an entry, its images, and the lists that it is in are
 * of the partition of the processor that made it. So processors that make
 * entries for blocks of their own share no list. The chain that finds the entry
 * is of the block's partition in any case.
 */
#include "journal.h"

/*
 * A search without a lock ends after so many entries, because it may be in a
 * wrong chain.
 */
#define SEARCH_MOST 64
/* How many entries the clock hand examines for each new entry. */
#define CLOCK_STEPS 4

static struct nvj_bucket *bucket_of(struct nvj_partition *p, uint64_t number)
{
	return &p->buckets[number * NVJ_HASH >> p->bucket_shift];
}

static struct nvj_block *search(struct nvj_bucket *bucket, uint64_t number, unsigned most)
{
	/* Acquire, here and below: an entry is complete before it is linked. */
	struct nvj_block *b = nvj_load_acquire(&bucket->first);

	while (b && most--) {
		if (nvj_load(&b->number) == number)
			return b;
		b = nvj_load_acquire(&b->next);
	}
	return NULL;
}

struct nvj_block *nvj_block_find(struct nvj *j, struct nvj_partition *p, uint64_t number)
{
	struct nvj_bucket *bucket = bucket_of(p, number);
	struct nvj_block *b = search(bucket, number, SEARCH_MOST);

	if (!b && nvj_load(&bucket->first)) {
		nvj_lock(&bucket->lock, &j->platform);
		b = search(bucket, number, ~0u);
		nvj_unlock(&bucket->lock, &j->platform);
	}
	return b;
}

/* Locks an entry that was found, if it is still the entry of the block. */
static bool lock_found(struct nvj *j, struct nvj_block *b, uint64_t number)
{
	nvj_lock(&b->lock, &j->platform);
	if (nvj_load(&b->number) == number)
		return true;
	nvj_block_unlock(j, b);
	return false;
}

struct nvj_block *nvj_block_lock(struct nvj *j, struct nvj_partition *p, uint64_t number)
{
	struct nvj_bucket *bucket = bucket_of(p, number);
	struct nvj_block *b = search(bucket, number, SEARCH_MOST);

	if (b && lock_found(j, b, number))
		return b;
	/* Under the lock of the bucket no entry is added or removed. */
	nvj_lock(&bucket->lock, &j->platform);
	b = search(bucket, number, ~0u);
	if (b)
		nvj_lock(&b->lock, &j->platform);
	nvj_unlock(&bucket->lock, &j->platform);
	return b;
}

/* The caller holds list_lock. */
static bool grow(struct nvj *j, struct nvj_partition *p)
{
	size_t header = (sizeof(struct nvj_slab) + 63) & ~(size_t)63;
	struct nvj_slab *slab =
		nvj_slab_make(j, header + NVJ_BLOCKS_OF_SLAB * sizeof(struct nvj_block));

	if (!slab)
		return false;
	slab->blocks = (struct nvj_block *)(void *)((uint8_t *)slab + header);
	for (unsigned i = 0; i < NVJ_BLOCKS_OF_SLAB; i++) {
		nvj_store(&slab->blocks[i].number, NVJ_NO_BLOCK);
		slab->blocks[i].lists = p;
		slab->blocks[i].free_next = p->free_blocks;
		p->free_blocks = &slab->blocks[i];
	}
	slab->next = p->block_slabs;
	p->block_slabs = slab;
	p->entries += NVJ_BLOCKS_OF_SLAB;
	return true;
}

/*
 * Returns a free entry of p for the block, locked. One that will be accessed
 * gets its image, and is put into the dirty list: so list_lock moves to this
 * processor only once. If there is no memory for the image, the entry has none.
 */
static struct nvj_block *take(struct nvj *j, struct nvj_partition *p, uint64_t number,
			      bool accessed)
{
	struct nvj_block *b = NULL;
	bool locked = false;

	nvj_lock(&p->list_lock, &j->platform);
	if (p->free_blocks || grow(j, p)) {
		b = p->free_blocks;
		p->free_blocks = b->free_next;
		nvj_store(&p->blocks, p->blocks + 1);
		/*
		 * A search in a wrong chain may hold it for a moment. In the order
		 * of locks it comes before list_lock.
		 */
		locked = nvj_try_lock(&b->lock);
		if (locked)
			nvj_store(&b->number, number);
		if (locked && accessed) {
			b->image = nvj_image_take_locked(j, p);
			b->dirty = true;
			b->dirty_next = p->dirty;
			p->dirty = b;
		}
	}
	nvj_unlock(&p->list_lock, &j->platform);
	if (b && !locked) {
		nvj_lock(&b->lock, &j->platform);
		nvj_store(&b->number, number);
	}
	return b;
}

static void move_count(uint64_t *to, uint32_t *from)
{
	if (*from) {
		nvj_count(to, *from);
		nvj_store(from, 0);
	}
}

void nvj_counts_give(struct nvj_block *b)
{
	struct nvj_partition *p = b->lists;

	move_count(&p->records, &b->records);
	move_count(&p->batches, &b->batches);
	move_count(&p->zero_lines, &b->zero_lines);
	move_count(&p->freezes, &b->freezes);
}

/*
 * Makes an entry free, and all its images. No pointer leads to it any more. The
 * caller holds list_lock.
 */
static void give(struct nvj_partition *p, struct nvj_block *b, struct nvj_image *images)
{
	nvj_counts_give(b);
	while (images) {
		struct nvj_image *image = images;

		images = image->next;
		image->next = p->free_images;
		p->free_images = image;
	}
	b->free_next = p->free_blocks;
	p->free_blocks = b;
	nvj_store(&p->blocks, p->blocks - 1);
}

/*
 * Says that all its content is at home and no open handle uses it. The caller
 * holds its lock.
 */
static bool may_go(struct nvj *j, const struct nvj_block *b)
{
	return !b->dirty && !b->frozen && !b->listed[NVJ_LIST_REVOKED] &&
	       !b->listed[NVJ_LIST_LATER] && !b->writing &&
	       nvj_load(&b->newest_tid) <= nvj_load_sc(&j->committed) &&
	       (!b->image || b->image->tid <= b->home_tid);
}

static void unlink_block(struct nvj_bucket *bucket, struct nvj_block *b)
{
	struct nvj_block **link = &bucket->first;

	while (nvj_load(link) != b)
		link = &nvj_load(link)->next;
	nvj_store_release(link, nvj_load(&b->next));
}

/*
 * Removes the entry from the bucket, of partition p, if it may be evicted. The
 * caller holds the lock of the bucket.
 */
static bool detach(struct nvj *j, struct nvj_partition *p, struct nvj_bucket *bucket,
		   struct nvj_block *b, uint64_t number, struct nvj_image **images)
{
	if (!nvj_try_lock(&b->lock))
		return false;
	if (nvj_load(&b->number) != number || !may_go(j, b)) {
		nvj_block_unlock(j, b);
		return false;
	}
	/*
	 * Before the lock of the bucket is free: then another thread may make an
	 * entry for the block again.
	 */
	nvj_raise_sc(&p->sequence, b->sequence);
	unlink_block(bucket, b);
	nvj_store(&b->number, NVJ_NO_BLOCK);
	nvj_store_release(&b->access_tid, 0);
	nvj_store_release(&b->newest_tid, 0);
	*images = b->spares;
	if (b->image) {
		b->image->next = *images;
		*images = b->image;
	}
	b->image = b->spares = NULL;
	b->spare_count = b->promised = 0;
	nvj_block_unlock(j, b);
	return true;
}

static void evict(struct nvj *j, struct nvj_partition *p, struct nvj_block *b)
{
	uint64_t number = nvj_load(&b->number);
	struct nvj_partition *of = &j->partition[nvj_partition_of(j, number)];
	struct nvj_bucket *bucket = bucket_of(of, number);
	struct nvj_image *images;
	bool detached;

	if (number == NVJ_NO_BLOCK)
		return;
	nvj_lock(&bucket->lock, &j->platform);
	detached = detach(j, of, bucket, b, number, &images);
	nvj_unlock(&bucket->lock, &j->platform);
	if (!detached)
		return;
	nvj_lock(&p->list_lock, &j->platform);
	give(p, b, images);
	nvj_unlock(&p->list_lock, &j->platform);
}

/*
 * The caller holds list_lock. In the order of locks it comes after the lock of
 * a bucket. So this function only tries to lock, and skips an entry whose
 * bucket is locked.
 */
static bool try_evict(struct nvj *j, struct nvj_partition *p, struct nvj_block *b)
{
	uint64_t number = nvj_load(&b->number);
	struct nvj_partition *of = &j->partition[nvj_partition_of(j, number)];
	struct nvj_bucket *bucket = bucket_of(of, number);
	struct nvj_image *images;
	bool detached;

	if (number == NVJ_NO_BLOCK || !nvj_try_lock(&bucket->lock))
		return false;
	detached = detach(j, of, bucket, b, number, &images);
	nvj_unlock(&bucket->lock, &j->platform);
	if (detached)
		give(p, b, images);
	return detached;
}

/*
 * Moves the clock hand forward, over the returned entry, and over free entries
 * before it, of at most one slab. There is an entry. The caller holds list_lock.
 */
static struct nvj_block *pass_next(struct nvj_partition *p)
{
	struct nvj_block *b = NULL;

	for (unsigned i = 0; i < NVJ_BLOCKS_OF_SLAB; i++) {
		if (!p->clock || p->clock_at == NVJ_BLOCKS_OF_SLAB) {
			p->clock = p->clock && p->clock->next ? p->clock->next : p->block_slabs;
			p->clock_at = 0;
		}
		b = &p->clock->blocks[p->clock_at++];
		if (nvj_load(&b->number) != NVJ_NO_BLOCK)
			break;
	}
	return b;
}

uint64_t nvj_blocks_evict(struct nvj *j, struct nvj_partition *p, uint64_t most, uint64_t *looks)
{
	/* As many steps as a turn of the clock hand has. */
	uint64_t left = p->blocks + p->entries / NVJ_BLOCKS_OF_SLAB;
	uint64_t gone = 0;

	for (; left && *looks && gone < most; left--, --*looks)
		gone += try_evict(j, p, pass_next(p));
	return gone;
}

/*
 * How many clean entries may stay in the lists of a partition. With rings by
 * processor, the partitions of processors that never started a handle have none,
 * and leave theirs to the others.
 */
static uint64_t most_of(const struct nvj *j, const struct nvj_partition *p)
{
	uint32_t cpus = nvj_load(&j->cpus);

	if (!j->geometry.by_cpu || cpus >= j->partitions)
		return p->most_blocks;
	return p->most_blocks * j->partitions / cpus;
}

static void turn_clock(struct nvj *j, struct nvj_partition *p)
{
	struct nvj_block *passed[CLOCK_STEPS] = {NULL};

	if (nvj_load(&p->blocks) <= p->most_blocks || nvj_load(&p->blocks) <= most_of(j, p))
		return;
	nvj_lock(&p->list_lock, &j->platform);
	for (int i = 0; i < CLOCK_STEPS; i++)
		passed[i] = pass_next(p);
	nvj_unlock(&p->list_lock, &j->platform);
	for (int i = 0; i < CLOCK_STEPS && nvj_load(&p->blocks) > most_of(j, p); i++)
		evict(j, p, passed[i]);
}

struct nvj_block *nvj_block_make(struct nvj_handle *h, uint64_t number, bool accessed)
{
	struct nvj *j = h->journal;
	struct nvj_partition *p = &j->partition[nvj_partition_of(j, number)];
	struct nvj_partition *lists =
		j->geometry.by_cpu ? &j->partition[nvj_partition_of(j, h->cpu)] : p;
	struct nvj_bucket *bucket = bucket_of(p, number);
	struct nvj_block *b = search(bucket, number, SEARCH_MOST);

	if (b && lock_found(j, b, number))
		return b;
	turn_clock(j, lists);
	nvj_lock(&bucket->lock, &j->platform);
	b = search(bucket, number, ~0u);
	if (b) {
		nvj_lock(&b->lock, &j->platform);
	} else {
		b = take(j, lists, number, accessed);
		if (b) {
			b->sequence = nvj_load(&p->sequence);
			b->created = false;
			b->home_tid = 0;
			nvj_store(&b->next, nvj_load(&bucket->first));
			nvj_store_release(&bucket->first, b);
		}
	}
	nvj_unlock(&bucket->lock, &j->platform);
	return b;
}

void nvj_block_into_dirty(struct nvj *j, struct nvj_block *b)
{
	struct nvj_partition *p = b->lists;

	b->dirty = true;
	nvj_lock(&p->list_lock, &j->platform);
	b->dirty_next = p->dirty;
	p->dirty = b;
	nvj_unlock(&p->list_lock, &j->platform);
}

void nvj_block_list(struct nvj *j, struct nvj_block *b, enum nvj_list list, uint64_t tid)
{
	unsigned slot = tid & (NVJ_SLOTS - 1);
	struct nvj_partition *p = b->lists;

	if (b->listed[list] >> slot & 1)
		return;
	b->listed[list] = (uint8_t)(b->listed[list] | 1u << slot);
	nvj_lock(&p->list_lock, &j->platform);
	b->listed_next[list][slot] = p->listed[list][slot];
	nvj_store(&p->listed[list][slot], b);
	nvj_unlock(&p->list_lock, &j->platform);
}

struct nvj_block *nvj_listed_take(struct nvj *j, struct nvj_partition *p, enum nvj_list list,
				  uint64_t tid)
{
	struct nvj_block **first = &p->listed[list][tid & (NVJ_SLOTS - 1)], *b;

	if (!nvj_load(first))
		return NULL;
	nvj_lock(&p->list_lock, &j->platform);
	b = *first;
	nvj_store(first, NULL);
	nvj_unlock(&p->list_lock, &j->platform);
	return b;
}

struct nvj_block *nvj_listed_next(struct nvj_block *b, enum nvj_list list, uint64_t tid)
{
	unsigned slot = tid & (NVJ_SLOTS - 1);

	/* Until here this bit keeps the entry from being reused. */
	b->listed[list] = (uint8_t)(b->listed[list] & ~(1u << slot));
	return b->listed_next[list][slot];
}
