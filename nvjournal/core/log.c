/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A change of a block into its ring: the lines that changed are copied into the
 * block's image and into a record, and lines are reserved for it by one addition to
 * the ring's head. Both under that block's own lock, so the order of a block's
 * records in the ring is the order of its changes. The caller's memory is read
 * once: what another thread does to it meanwhile cannot make a record that
 * contradicts its CRC.
 *
 * The handle keeps the record, and writes it into the ring with its others when it
 * stops: an atomic instruction waits until all has arrived that was written past
 * the cache, and with one lock and one reservation a record each would wait for
 * the one before. Only what takes the last credits, or finds no room there, is
 * written at once, from the image.
 */
#include "journal.h"

/*
 * The caller's memory may be anything, at any address, and change under us: each
 * piece of it is read once (volatile), and kept as it was looked at. A piece is
 * two words where the compiler may use vector registers; in a kernel it may not.
 */
#if defined(__SSE2__) || defined(__ARM_NEON)
typedef uint64_t piece __attribute__((vector_size(16)));
typedef uint64_t piece_anywhere __attribute__((vector_size(16), aligned(1), may_alias));
#define ANY(p) (((p)[0] | (p)[1]) != 0)
#else
typedef uint64_t piece;
typedef uint64_t piece_anywhere __attribute__((aligned(1), may_alias));
#define ANY(p) ((p) != 0)
#endif
typedef uint64_t word __attribute__((may_alias));
#define PIECE_OF(at) (*(const volatile piece_anywhere *)(const volatile void *)(at))

static uint64_t lines_that_differ(const uint8_t *image, const uint8_t *caller)
{
	uint64_t mask = 0;

	for (unsigned line = 0; line < NVJ_BLOCK_LINES; line++) {
		piece differ = PIECE_OF(image) ^ PIECE_OF(caller);

		NVJ_UNROLLED
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

	NVJ_UNROLLED
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

/*
 * Copies the lines of mask from the caller's memory to the image and, unless that
 * is NULL, those that are not zero to a record. Returns those that are.
 */
static inline uint64_t copy_lines(uint8_t *image, uint8_t *record, const uint8_t *caller,
				  uint64_t mask)
{
	uint64_t zeros = 0;

	for (uint64_t left = mask; left; left &= left - 1) {
		unsigned line = (unsigned)__builtin_ctzll(left);
		const uint8_t *from = caller + line * NVJ_LINE_BYTES;
		uint8_t *to = image + line * NVJ_LINE_BYTES;
		piece all = {0};

		NVJ_UNROLLED
		for (unsigned i = 0; i < NVJ_LINE_BYTES; i += sizeof(piece)) {
			piece p = PIECE_OF(from + i);

			all |= p;
			*(piece_anywhere *)(void *)(to + i) = p;
			if (record)
				*(piece_anywhere *)(void *)(record + i) = p;
		}
		if (!ANY(all))
			zeros |= UINT64_C(1) << line;
		else if (record)
			record += NVJ_LINE_BYTES;
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

	if (NVJ_UNLIKELY(!copy))
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

/* What a handle keeps, at a multiple of a line. */
static inline uint8_t *kept(struct nvj_handle *h)
{
	return (uint8_t *)(((uintptr_t)h->kept + NVJ_LINE_BYTES - 1) &
			   ~(uintptr_t)(NVJ_LINE_BYTES - 1));
}

/* A record that is together, all but its CRC. */
static void write_kept(struct nvj *j, struct nvj_partition *p, uint64_t position, unsigned lines,
		       uint8_t *record)
{
	const struct nvj_persistence *way = j->persistence;
	uint64_t place = nvj_remainder(&j->by_ring, position);
	uint32_t crc = nvj_crc32c(j->geometry.seed, record, lines * NVJ_LINE_BYTES);
	unsigned here = lines;

	*(word *)(void *)record = NVJ_RECORD_MAGIC | (uint64_t)crc << 32;
	if (NVJ_UNLIKELY(place + lines > j->by_ring.by))
		here = (unsigned)(j->by_ring.by - place);
	/* No order within a record, nor between records: the fence is behind them all. */
	way->write(way, p->lines + place * NVJ_LINE_BYTES, record, here * NVJ_LINE_BYTES);
	if (NVJ_UNLIKELY(here < lines))
		way->write(way, p->lines, record + here * NVJ_LINE_BYTES,
			   (lines - here) * NVJ_LINE_BYTES);
}

void nvj_handle_write(struct nvj_handle *h)
{
	struct nvj *j = h->journal;
	uint8_t *record = kept(h);

	for (; h->written < h->records; h->written++) {
		uint64_t position = h->position[h->written];
		unsigned lines = position & 255;

		write_kept(j, &j->partition[h->partition[h->written]], position >> 8, lines,
			   record);
		record += lines * NVJ_LINE_BYTES;
	}
	h->kept_lines = 0;
}

/* Under the block's lock; moved elsewhere before they run over. */
static void count_record(struct nvj_partition *p, struct nvj_block *b, bool first)
{
	nvj_store(&b->records, b->records + 1);
	if (first)
		nvj_store(&b->batches, b->batches + 1);
	if (NVJ_UNLIKELY(b->records >> 31)) {
		nvj_count(&p->records, b->records);
		nvj_count(&p->batches, b->batches);
		nvj_store(&b->records, 0);
		nvj_store(&b->batches, 0);
	}
}

_Static_assert(offsetof(struct nvj_disk_record, crc) == 4 &&
		       offsetof(struct nvj_disk_record, position) == 8 &&
		       offsetof(struct nvj_disk_record, tid) == 16 &&
		       offsetof(struct nvj_disk_record, block) == 24 &&
		       offsetof(struct nvj_disk_record, mask) == 32 &&
		       offsetof(struct nvj_disk_record, zeros) == 40 &&
		       offsetof(struct nvj_disk_record, kind) == 48 &&
		       offsetof(struct nvj_disk_record, lines) == 50,
	       "words of a record's header");

/*
 * Flags come from memory: so far before their records that they have arrived by
 * then. A whole number of laps of the order in which they lie (nvj_flag_at), so that
 * each line of them is fetched by one record or another.
 */
#define FLAGS_AHEAD_LINES (4 * NVJ_FLAGS_TOGETHER)

/* Reserves lines: the record's position, or NVJ_EROFS. */
static int64_t reserve(struct nvj *j, struct nvj_partition *p, unsigned lines)
{
	/* The paper's reservation (3, Fig. 2; 4, Fig. 2): one fetch-and-add. */
	uint64_t position = nvj_add_sc(&p->head, lines);
	uintptr_t flag;

	if (NVJ_UNLIKELY(position + lines > nvj_load(&p->alarm))) {
		int error = nvj_room_alarm(j, p, position + lines);

		if (error)
			return error;
	}
	flag = (uintptr_t)nvj_flag_at(j, p, position);
	/* Beyond the end there may be nothing: that does no harm. */
	nvj_will_write((const void *)(flag + FLAGS_AHEAD_LINES * sizeof(uint64_t)));
	/* It may have arrived at another processor. */
	nvj_will_write((const void *)flag);
	return (int64_t)position;
}

/* What is not kept: header, and lines of the image in their runs. */
static void write_record(struct nvj *j, struct nvj_partition *p, word *header, const uint8_t *image)
{
	const struct nvj_disk_record *record = (const void *)header;
	const struct nvj_persistence *way = j->persistence;
	uint64_t place = nvj_remainder(&j->by_ring, header[1]), mask = header[4] & ~header[5];
	uint32_t crc = nvj_crc32c(j->geometry.seed, header, NVJ_LINE_BYTES);
	uint8_t *to = p->lines + place * NVJ_LINE_BYTES;

	for (uint64_t left = mask; left;) {
		unsigned count, first = nvj_take_run(&left, &count);

		crc = nvj_crc32c(crc, image + first * NVJ_LINE_BYTES, count * NVJ_LINE_BYTES);
	}
	header[0] |= (uint64_t)crc << 32;
	if (NVJ_UNLIKELY(place + (header[6] >> 16) > j->by_ring.by)) {
		nvj_record_write(&j->geometry, way, p->index, record, image);
		return;
	}
	way->write(way, to, header, NVJ_LINE_BYTES);
	to += NVJ_LINE_BYTES;
	for (uint64_t left = mask; left;) {
		unsigned count, first = nvj_take_run(&left, &count);

		way->write(way, to, image + first * NVJ_LINE_BYTES, count * NVJ_LINE_BYTES);
		to += count * NVJ_LINE_BYTES;
	}
}

int nvj_record_log(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		   enum nvj_record_kind kind, uint64_t mask, const void *caller)
{
	struct nvj *j = h->journal;
	uint8_t *image = mask ? b->image->bytes : NULL;
	unsigned slot = h->tid & (NVJ_SLOTS - 1), lines = 1 + nvj_popcount(mask);
	word own[8] __attribute__((aligned(NVJ_LINE_BYTES))), *header = own;
	uint64_t zeros;
	int64_t position;
	bool keep;

	/* It comes while the lines are copied. Asked for earlier, another takes it away again. */
	nvj_will_write(&p->head);
	/* Before the handle ends: who closes the transaction knows that it is not empty. */
	if (NVJ_UNLIKELY(nvj_load(&j->dirty[slot]) != h->tid))
		nvj_store_release(&j->dirty[slot], h->tid);
	if (h->records == 0)
		h->written = h->kept_lines = 0;
	/* Nothing comes behind a record that takes all credits: it goes into the ring at once. */
	keep = lines < h->credits && lines <= NVJ_HANDLE_LINES - h->kept_lines;
	if (keep) {
		header = (word *)(void *)(kept(h) + h->kept_lines * NVJ_LINE_BYTES);
		zeros = copy_lines(image, (uint8_t *)(header + 8), caller, mask);
	} else {
		zeros = copy_lines(image, NULL, caller, mask);
	}
	if (NVJ_UNLIKELY(zeros)) {
		lines -= nvj_popcount(zeros);
		nvj_count(&j->cpu[h->cpu].zero_lines, nvj_popcount(zeros));
	}
	position = reserve(j, p, lines);
	if (NVJ_UNLIKELY(position < 0))
		return (int)position;
	/* In words, as it is summed and written: what is loaded in larger pieces waits. */
	header[0] = NVJ_RECORD_MAGIC;
	header[1] = (uint64_t)position;
	header[2] = h->tid;
	header[3] = b->number;
	header[4] = mask;
	header[5] = zeros;
	header[6] = (uint64_t)kind | (uint64_t)lines << 16;
	header[7] = 0;
	h->partition[h->records] = p->index;
	h->position[h->records] = (uint64_t)position << 8 | lines;
	if (keep) {
		h->kept_lines += lines;
	} else {
		/* Those that are kept first: what is written are the first ones. */
		nvj_handle_write(h);
		write_record(j, p, header, image);
		h->written++;
	}
	count_record(p, b, h->records == 0);
	h->credits -= lines < h->credits ? lines : h->credits;
	h->records++;
	return (int)lines;
}

/* As nvj_log, under the block's lock. */
static int log_block(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		     const uint8_t *caller, uint64_t mask, enum nvj_record_kind kind)
{
	struct nvj *j = h->journal;
	uint64_t newest = nvj_load(&b->newest_tid);
	int lines;

	if (NVJ_UNLIKELY(!b->image || newest < h->tid))
		return NVJ_EINVAL; /* without nvj_access */
	/*
	 * A later transaction has the block, too, and may have changed the
	 * memory that is logged here: both commit together. Before this handle
	 * ends, so the leader sees it.
	 */
	if (NVJ_UNLIKELY(newest > h->tid))
		nvj_raise_sc(&j->merge_to, newest);
	if (NVJ_UNLIKELY(b->created))
		mask = NVJ_ALL_LINES;
	else if (mask == NVJ_COMPARE)
		mask = lines_that_differ(b->image->bytes, caller);
	if (mask == 0)
		return 0;
	/* Nothing is changed yet: a handle that asks for too much leaves no trace. */
	if (NVJ_UNLIKELY(1u + nvj_popcount(mask) > h->credits) &&
	    nvj_record_lines(mask, zero_lines(caller, mask)) > h->credits)
		return NVJ_ENOSPC;
	if (b->image->tid && b->image->tid < h->tid && b->image->tid > b->home_tid &&
	    NVJ_UNLIKELY(!freeze(j, p, b)))
		return NVJ_ENOMEM;

	if (b->image->tid < h->tid)
		b->image->tid = h->tid;
	nvj_block_dirty(j, p, b);
	lines = nvj_record_log(h, p, b, kind, mask, caller);
	if (NVJ_LIKELY(lines > 0))
		b->created = false;
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

	if (NVJ_UNLIKELY(nvj_load(&j->aborted)))
		return NVJ_EROFS;
	/* It was accessed, so it stays where it is. */
	b = nvj_block_find(j, p, block);
	if (NVJ_UNLIKELY(!b))
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
	if (NVJ_UNLIKELY(h->records == NVJ_HANDLE_BLOCKS || (closing && closing < h->tid)))
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
