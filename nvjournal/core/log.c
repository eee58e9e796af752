/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A change of a block into its ring: the lines that changed go into the block's
 * image, lines are reserved by one addition to the ring's head, and the record
 * is written there from the image. All under that block's own lock, so the order
 * of a block's records in the ring is the order of its changes. The caller's
 * memory is read once: what another thread does to it meanwhile cannot make a
 * record that contradicts its CRC.
 */
#include "journal.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/*
 * The caller's memory may be anything, at any address, and change under us: each
 * piece of it is read once (volatile), and kept as it was looked at. A piece is
 * two words where the compiler may use vector registers; in a kernel it may not.
 */
#if defined(__SSE2__) || defined(__ARM_NEON)
typedef uint64_t piece __attribute__((vector_size(16)));
typedef uint64_t piece_anywhere __attribute__((vector_size(16), aligned(1), may_alias));
#define ANY(p) (((p)[0] | (p)[1]) != 0)
#define FIRST_PIECE(first, second) ((piece){first, second})
#else
typedef uint64_t piece;
typedef uint64_t piece_anywhere __attribute__((aligned(1), may_alias));
#define ANY(p) ((p) != 0)
#define FIRST_PIECE(first, second) (first)
#endif
#define PIECE_OF(at) (*(const volatile piece_anywhere *)(const volatile void *)(at))

#if defined(__clang__)
#define UNROLLED _Pragma("unroll")
#else
#define UNROLLED _Pragma("GCC unroll 8")
#endif

static uint64_t lines_that_differ(const uint8_t *image, const uint8_t *caller)
{
	uint64_t mask = 0;

	for (unsigned line = 0; line < NVJ_BLOCK_LINES; line++) {
		piece differ = PIECE_OF(image) ^ PIECE_OF(caller);

		UNROLLED
		for (unsigned i = sizeof(piece); i < NVJ_LINE_BYTES; i += sizeof(piece))
			differ |= PIECE_OF(image + i) ^ PIECE_OF(caller + i);
		mask |= (uint64_t)ANY(differ) << line;
		image += NVJ_LINE_BYTES;
		caller += NVJ_LINE_BYTES;
	}
	return mask;
}

static bool line_is_zero(const uint8_t *at)
{
	piece all = PIECE_OF(at);

	UNROLLED
	for (unsigned i = sizeof(piece); i < NVJ_LINE_BYTES; i += sizeof(piece))
		all |= PIECE_OF(at + i);
	return !ANY(all);
}

static uint64_t zero_lines(const uint8_t *caller, uint64_t mask)
{
	uint64_t zeros = 0;

	for (uint64_t left = mask; left; left &= left - 1) {
		unsigned line = (unsigned)__builtin_ctzll(left);

		if (line_is_zero(caller + line * NVJ_LINE_BYTES))
			zeros |= UINT64_C(1) << line;
	}
	return zeros;
}

/* Copies the lines of mask; returns those that are zero, as copied. */
static uint64_t copy_lines(uint8_t *image, const uint8_t *caller, uint64_t mask)
{
	uint64_t zeros = 0;

	for (uint64_t left = mask; left; left &= left - 1) {
		unsigned line = (unsigned)__builtin_ctzll(left);
		const uint8_t *from = caller + line * NVJ_LINE_BYTES;
		piece_anywhere *to = (void *)(image + line * NVJ_LINE_BYTES);
		piece all = *to = PIECE_OF(from);

		UNROLLED
		for (unsigned i = 1; i < NVJ_LINE_BYTES / sizeof(piece); i++)
			all |= to[i] = PIECE_OF(from + i * sizeof(piece));
		if (!ANY(all))
			zeros |= UINT64_C(1) << line;
	}
	return zeros;
}

/*
 * The image is a version of an earlier transaction and not yet at home: it is
 * kept as it is, for a checkpoint, and the block goes on with a copy. False:
 * there is no spare, which nvj_access should have seen to.
 */
static bool freeze(struct nvj *j, struct nvj_partition *p, struct nvj_block *b)
{
	struct nvj_image *old = b->image, *copy = b->spares;

	if (UNLIKELY(!copy))
		return false;
	b->spares = copy->next;
	__builtin_memcpy(copy->bytes, old->bytes, NVJ_BLOCK_BYTES);
	copy->tid = 0;
	copy->revoked_by = 0;
	copy->next = NULL;
	old->next = b->frozen;
	b->frozen = old;
	b->image = copy;
	nvj_count(&j->frozen, 1);
	nvj_frozen_trim(j, p, b);
	return true;
}

/* The record's lines, from the image: each run of them in one piece. */
static void write_record(struct nvj *j, struct nvj_partition *p,
			 const struct nvj_disk_record *header, const uint8_t *image)
{
	const struct nvj_persistence *way = j->persistence;
	uint64_t place = nvj_remainder(&j->by_ring, header->position);
	uint64_t left = header->mask & ~header->zeros;
	uint8_t *to;

	if (UNLIKELY(place + header->lines > j->by_ring.by)) {
		nvj_record_write(&j->geometry, way, p->index, header, image);
		return;
	}
	/* No order within a record, nor between records: the fence is behind them all. */
	to = p->lines + place * NVJ_LINE_BYTES;
	way->write(way, to, header, NVJ_LINE_BYTES);
	to += NVJ_LINE_BYTES;
	while (left) {
		unsigned count, first = nvj_take_run(&left, &count);

		way->write(way, to, image + first * NVJ_LINE_BYTES, count * NVJ_LINE_BYTES);
		to += count * NVJ_LINE_BYTES;
	}
}

/*
 * A record's header is put together in whole words, as it is summed and written:
 * what is loaded in larger pieces than it was stored in must wait for the cache.
 */
union header {
	struct nvj_disk_record record;
	uint64_t word[8];
	piece piece;
} __attribute__((aligned(NVJ_LINE_BYTES)));

_Static_assert(offsetof(struct nvj_disk_record, crc) == 4 &&
		       offsetof(struct nvj_disk_record, position) == 8 &&
		       offsetof(struct nvj_disk_record, tid) == 16 &&
		       offsetof(struct nvj_disk_record, block) == 24 &&
		       offsetof(struct nvj_disk_record, mask) == 32 &&
		       offsetof(struct nvj_disk_record, zeros) == 40 &&
		       offsetof(struct nvj_disk_record, kind) == 48 &&
		       offsetof(struct nvj_disk_record, lines) == 50,
	       "words of a record's header");

/* Under the block's lock; moved elsewhere before they run over. */
static void count_record(struct nvj_partition *p, struct nvj_block *b, bool first)
{
	nvj_store(&b->records, b->records + 1);
	if (first)
		nvj_store(&b->batches, b->batches + 1);
	if (UNLIKELY(b->records >> 31)) {
		nvj_count(&p->records, b->records);
		nvj_count(&p->batches, b->batches);
		nvj_store(&b->records, 0);
		nvj_store(&b->batches, 0);
	}
}

int nvj_record_log(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		   enum nvj_record_kind kind, uint64_t mask, uint64_t zeros, const void *image)
{
	struct nvj *j = h->journal;
	unsigned lines = nvj_record_lines(mask, zeros);
	union header header;
	uint64_t position;
	unsigned slot = h->tid & (NVJ_SLOTS - 1);
	uint32_t crc;

	/* Before the handle ends: who closes the transaction knows that it is not empty. */
	if (UNLIKELY(nvj_load(&j->dirty[slot]) != h->tid))
		nvj_store_release(&j->dirty[slot], h->tid);

	/* The paper's reservation (3, Fig. 2; 4, Fig. 2): one fetch-and-add. */
	position = nvj_add_sc(&p->head, lines);
	if (UNLIKELY(position + lines > nvj_load(&p->alarm))) {
		int error = nvj_room_alarm(j, p, position + lines);

		if (error)
			return error;
	}
	header.word[1] = position;
	header.word[2] = h->tid;
	header.word[3] = b->number;
	header.word[4] = mask;
	header.word[5] = zeros;
	header.word[6] = (uint64_t)kind | (uint64_t)lines << 16;
	header.word[7] = 0;
	header.word[0] = NVJ_RECORD_MAGIC;
	crc = nvj_line_crc_record(&j->line_crc, j->geometry.seed, &header.record, image);
	header.piece = FIRST_PIECE(NVJ_RECORD_MAGIC | (uint64_t)crc << 32, position);
	write_record(j, p, &header.record, image);

	count_record(p, b, h->records == 0);
	h->credits -= lines < h->credits ? lines : h->credits;
	h->partition[h->records] = p->index;
	h->position[h->records] = position << 8 | lines;
	h->records++;
	return (int)lines;
}

/* As nvj_log, under the block's lock. */
static int log_block(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		     const uint8_t *caller, uint64_t mask, enum nvj_record_kind kind)
{
	struct nvj *j = h->journal;
	uint64_t newest = nvj_load(&b->newest_tid);
	uint64_t zeros;
	int lines;

	if (UNLIKELY(!b->image || newest < h->tid))
		return NVJ_EINVAL; /* without nvj_access */
	/*
	 * A later transaction has the block, too, and may have changed the
	 * memory that is logged here: both commit together. Before this handle
	 * ends, so the leader sees it.
	 */
	if (UNLIKELY(newest > h->tid))
		nvj_raise_sc(&j->merge_to, newest);
	if (UNLIKELY(b->created))
		mask = NVJ_ALL_LINES;
	else if (mask == NVJ_COMPARE)
		mask = lines_that_differ(b->image->bytes, caller);
	if (mask == 0)
		return 0;
	/* Nothing is changed yet: a handle that asks for too much leaves no trace. */
	if (UNLIKELY(1u + nvj_popcount(mask) > h->credits) &&
	    nvj_record_lines(mask, zero_lines(caller, mask)) > h->credits)
		return NVJ_ENOSPC;
	if (b->image->tid && b->image->tid < h->tid && b->image->tid > b->home_tid &&
	    UNLIKELY(!freeze(j, p, b)))
		return NVJ_ENOMEM;

	zeros = copy_lines(b->image->bytes, caller, mask);
	if (b->image->tid < h->tid)
		b->image->tid = h->tid;
	nvj_block_dirty(j, p, b);
	lines = nvj_record_log(h, p, b, kind, mask, zeros, b->image->bytes);
	if (LIKELY(lines > 0)) {
		b->created = false;
		if (UNLIKELY(zeros))
			nvj_count(&j->cpu[h->cpu].zero_lines, nvj_popcount(zeros));
	}
	return lines;
}

static int log_kind(struct nvj_handle *h, uint64_t block, const void *image, uint64_t mask,
		    enum nvj_record_kind kind)
{
	struct nvj *j = h->journal;
	struct nvj_partition *p = &j->partition[nvj_partition_of(j, block)];
	struct nvj_block *b;
	uint64_t closing;
	int lines;

	if (UNLIKELY(nvj_load(&j->aborted)))
		return NVJ_EROFS;
	/* It was accessed, so it stays where it is. */
	b = nvj_block_find(j, p, block);
	if (UNLIKELY(!b))
		return NVJ_EINVAL;
	nvj_lock(&b->lock, &j->platform);
	lines = nvj_load(&b->number) == block ? log_block(h, p, b, image, mask, kind) : NVJ_EINVAL;
	nvj_block_unlock(j, b);
	if (lines <= 0)
		return lines;

	if (kind == NVJ_DATA)
		nvj_count(&j->cpu[h->cpu].data_records, 1);
	/*
	 * An earlier transaction is closing, and who commits it must see every
	 * record whole that lies before its high: he shall not wait for our stop.
	 */
	closing = nvj_load_acquire(&j->closing);
	if (UNLIKELY(h->records == NVJ_HANDLE_BLOCKS || (closing && closing < h->tid)))
		nvj_handle_flag(h);
	return lines;
}

int nvj_log(struct nvj_handle *h, uint64_t block, const void *image, uint64_t mask)
{
	return log_kind(h, block, image, mask, NVJ_UPDATE);
}

int nvj_log_data(struct nvj_handle *h, uint64_t block, const void *image, uint64_t mask)
{
	return log_kind(h, block, image, mask, NVJ_DATA);
}
