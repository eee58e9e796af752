/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Logs a change of a block. The changed lines are copied into the block's image
 * and into a record. One addition to the ring's head reserves lines for the
 * record. Both happen under the lock of the block, so the records of a block
 * are in the ring in the order of its changes. The caller's memory is read only
 * once. So if another thread changes it meanwhile, the record still matches its
 * CRC.
 *
 * The handle keeps the record and writes it into the ring together with its
 * other records when it stops. The reason: an atomic instruction waits for all
 * earlier writes that bypass the cache. With one lock and one reservation for
 * each record, each record would wait for the one before. A record is written
 * at once, from the image, only if it takes the last credits or finds no space
 * in the handle.
 */
#include "journal.h"

/*
 * The caller's memory can have any content and any alignment, and can change
 * during the copy. Each piece of it is read once (volatile), and stored exactly
 * as it was compared. A piece has two words where the compiler may use vector
 * registers. In a kernel it may not.
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
 * Copies the lines of mask from the caller's memory to the image. Copies those
 * that are not zero also to a record, unless that is NULL. Returns the mask of
 * the lines that are zero.
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
 * The image is a version of an earlier transaction, and is not at home yet. It
 * is kept unchanged for a checkpoint, and the block continues with a copy.
 * False: there is no spare image, which nvj_access should have provided.
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

/* The record that a handle keeps, at a multiple of a line. */
static inline uint8_t *kept(struct nvj_handle *h)
{
	return (uint8_t *)(((uintptr_t)h->kept + NVJ_LINE_BYTES - 1) &
			   ~(uintptr_t)(NVJ_LINE_BYTES - 1));
}

/* Writes a record that is complete except its CRC. */
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
	/*
	 * There is no order within a record or between records, because one
	 * fence comes after all of them.
	 */
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

/*
 * Counts a record. The caller holds the block's lock. The counters are added
 * elsewhere before they overflow.
 */
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
 * Flags are fetched from memory so far ahead of their records that they arrive
 * in time. The distance is a multiple of the order in which flags are stored
 * (nvj_flag_at). So each line of flags is fetched by one of the records.
 */
#define FLAGS_AHEAD_LINES (4 * NVJ_FLAGS_TOGETHER)

/* Reserves lines. Returns the position of the record, or NVJ_EROFS. */
static int64_t reserve(struct nvj *j, struct nvj_partition *p, unsigned lines)
{
	/*
	 * The reservation of the papers (3, Fig. 2; 4, Fig. 2): one
	 * fetch-and-add.
	 */
	uint64_t position = nvj_add_sc(&p->head, lines);
	uintptr_t flag;

	if (NVJ_UNLIKELY(position + lines > nvj_load(&p->alarm))) {
		int error = nvj_room_alarm(j, p, position + lines);

		if (error)
			return error;
	}
	flag = (uintptr_t)nvj_flag_at(j, p, position);
	/* The address may be beyond the end of the flags: that is harmless. */
	nvj_will_write((const void *)(flag + FLAGS_AHEAD_LINES * sizeof(uint64_t)));
	/* The line may be in the cache of another processor now. */
	nvj_will_write((const void *)flag);
	return (int64_t)position;
}

/*
 * Writes a record that is not kept: the header, and the runs of lines of the
 * image.
 */
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

	/*
	 * Fetched while the lines are copied. Earlier, another processor would
	 * take it away again.
	 */
	nvj_will_write(&p->head);
	/*
	 * Before the handle ends, so that the thread that closes the
	 * transaction knows that it is not empty.
	 */
	if (NVJ_UNLIKELY(nvj_load(&j->dirty[slot]) != h->tid))
		nvj_store_release(&j->dirty[slot], h->tid);
	if (h->records == 0)
		h->written = h->kept_lines = 0;
	/*
	 * After a record that takes all credits no other record follows: write
	 * it at once.
	 */
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
	/*
	 * Stored in words, because it is summed and written in words. A larger
	 * load would have to wait.
	 */
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
		/*
		 * Write the kept records first, because they come first in the
		 * ring.
		 */
		nvj_handle_write(h);
		write_record(j, p, header, image);
		h->written++;
	}
	count_record(p, b, h->records == 0);
	h->credits -= lines < h->credits ? lines : h->credits;
	h->records++;
	return (int)lines;
}

/* As nvj_log. The caller holds the block's lock. */
static int log_block(struct nvj_handle *h, struct nvj_partition *p, struct nvj_block *b,
		     const uint8_t *caller, uint64_t mask, enum nvj_record_kind kind)
{
	struct nvj *j = h->journal;
	uint64_t newest = nvj_load(&b->newest_tid);
	int lines;

	if (NVJ_UNLIKELY(!b->image || newest < h->tid))
		return NVJ_EINVAL; /* nvj_access was not called */
	/*
	 * A later transaction has the block, too, and may have changed the
	 * memory that is logged here. So both commit together. This is stored
	 * before the handle ends, so that the leader sees it.
	 */
	if (NVJ_UNLIKELY(newest > h->tid))
		nvj_raise_sc(&j->merge_to, newest);
	if (NVJ_UNLIKELY(b->created))
		mask = NVJ_ALL_LINES;
	else if (mask == NVJ_COMPARE)
		mask = lines_that_differ(b->image->bytes, caller);
	if (mask == 0)
		return 0;
	/*
	 * Nothing is changed yet: a handle that logs too many lines leaves no
	 * trace.
	 */
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
	/* A handle accesses it, so its entry is not reused. */
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
	 * An earlier transaction is closing. The thread that commits it needs
	 * all records before its high. It must not wait until this handle
	 * stops.
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
