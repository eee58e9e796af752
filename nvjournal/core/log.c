/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Logs a change of a block. The changed lines are copied into the block's image
 * and into a record, which gets the next sequence number of the block. All of
 * this happens under the lock of the block, so the numbers have the order of
 * the changes. The caller's memory is read only once. So if another thread
 * changes it meanwhile, the record still matches its CRC.
 *
 * The handle keeps the record. When it stops, one addition to a ring's head
 * reserves lines for all its records, and it writes them. So a handle that runs
 * while another transaction commits has no place in a ring that the commit
 * would have to wait for. Another reason is that an atomic instruction waits
 * for all earlier writes that bypass the cache. With one lock and one
 * reservation for each record, each record would wait for the one before. A
 * record is written at once, from the image, only if it takes the last credits
 * or finds no space in the handle. Then the kept records are written, too.
 */
#include "frozen.h"
#include "lines.h"

typedef uint64_t word __attribute__((may_alias));

/* The records that a handle keeps, at a multiple of a line. */
static inline uint8_t *kept(struct nvj_handle *h)
{
	return (uint8_t *)(((uintptr_t)h->kept + NVJ_LINE_BYTES - 1) &
			   ~(uintptr_t)(NVJ_LINE_BYTES - 1));
}

static inline unsigned lines_of(const word *header)
{
	return (unsigned)(header[6] >> 16 & 0xffff);
}

/* The ring for a record of the block. */
static inline struct nvj_partition *ring_of(const struct nvj_handle *h, uint64_t block)
{
	struct nvj *j = h->journal;

	return &j->partition[nvj_partition_of(j, j->geometry.by_cpu ? h->cpu : block)];
}

/*
 * Flags are fetched from memory so far ahead of their records that they arrive
 * in time. The distance is a multiple of the order in which flags are stored
 * (nvj_flag_at). So each line of flags is fetched by one of the records.
 */
#define FLAGS_AHEAD_LINES (4 * NVJ_FLAGS_TOGETHER)

/*
 * Reserves lines for records of a handle, which get one flag together. Returns
 * their position, or NVJ_EROFS.
 */
static NVJ_INLINED int64_t reserve(struct nvj_handle *h, struct nvj_partition *p, unsigned lines)
{
	struct nvj *j = h->journal;
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
	h->partition[h->placed] = p->index;
	h->position[h->placed++] = position << 8 | lines;
	return (int64_t)position;
}

/* Writes lines to a position. There is no order between them. */
static void write_lines(struct nvj *j, struct nvj_partition *p, uint64_t position,
			const uint8_t *from, unsigned lines)
{
	const struct nvj_persistence *way = j->persistence;
	uint64_t place = nvj_remainder(&j->by_ring, position);
	unsigned here = lines;

	if (NVJ_UNLIKELY(place + lines > j->by_ring.by))
		here = (unsigned)(j->by_ring.by - place);
	way->write(way, p->lines + place * NVJ_LINE_BYTES, from, here * NVJ_LINE_BYTES);
	if (NVJ_UNLIKELY(here < lines))
		way->write(way, p->lines, from + here * NVJ_LINE_BYTES,
			   (lines - here) * NVJ_LINE_BYTES);
}

/*
 * Completes kept records of lines in all with their positions and CRCs, and
 * writes them. The lines of a record are written before its header, although
 * they follow it in the ring: so they are on their way to the memory while the
 * CRC is computed. Writes are ordered, so behind the header they would wait for
 * the CRC, too.
 */
static void write_kept(struct nvj *j, struct nvj_partition *p, uint64_t position, uint8_t *records,
		       unsigned lines)
{
	for (unsigned at = 0, next; at < lines; at = next) {
		uint8_t *record = records + at * NVJ_LINE_BYTES;
		word *header = (word *)(void *)record;

		next = at + lines_of(header);
		if (next > at + 1)
			write_lines(j, p, position + at + 1, record + NVJ_LINE_BYTES,
				    next - at - 1);
		header[1] = position + at;
		header[0] = NVJ_RECORD_MAGIC;
		header[0] |= (uint64_t)nvj_crc32c_lines(j->geometry.seed, header, next - at) << 32;
		write_lines(j, p, position + at, record, 1);
	}
}

int nvj_handle_write(struct nvj_handle *h)
{
	uint8_t *records = kept(h);

	while (h->kept_lines) {
		word *header = (word *)(void *)records;
		struct nvj_partition *ring = ring_of(h, header[3]);
		unsigned lines = 0;
		int64_t position;

		if (NVJ_UNLIKELY(h->placed == NVJ_HANDLE_BLOCKS))
			nvj_handle_set_flags(h);
		/* One reservation for all that go to the same ring. */
		do {
			lines += lines_of(header);
			header = (word *)(void *)(records + lines * NVJ_LINE_BYTES);
		} while (lines < h->kept_lines && ring_of(h, header[3]) == ring);
		position = reserve(h, ring, lines);
		if (NVJ_UNLIKELY(position < 0)) {
			h->kept_lines = 0;
			return (int)position;
		}
		write_kept(h->journal, ring, (uint64_t)position, records, lines);
		records += lines * NVJ_LINE_BYTES;
		h->kept_lines -= lines;
	}
	return 0;
}

/* Counts a record. The caller holds the block's lock. */
static NVJ_INLINED void count_record(struct nvj_block *b, bool first, uint64_t zeros)
{
	nvj_store(&b->records, b->records + 1);
	if (first)
		nvj_store(&b->batches, b->batches + 1);
	if (NVJ_UNLIKELY(zeros))
		nvj_store(&b->zero_lines, b->zero_lines + nvj_popcount(zeros));
	if (NVJ_UNLIKELY((b->records | b->zero_lines) >> 31))
		nvj_counts_give(b);
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

/* The CRC of a record of runs of lines of the image. The header has none yet. */
static NVJ_INLINED uint32_t crc_of(const struct nvj *j, const word *header, const uint8_t *image)
{
	uint32_t crc = nvj_crc32c_lines(j->geometry.seed, header, 1);

	for (uint64_t left = header[4] & ~header[5]; left;) {
		unsigned count, first = nvj_take_run(&left, &count);

		crc = nvj_crc32c_lines(crc, image + first * NVJ_LINE_BYTES, count);
	}
	return crc;
}

/*
 * Writes a record that is complete except its CRC: the runs of lines of the
 * image, and then the header, as write_kept does.
 */
static NVJ_INLINED void write_record(struct nvj *j, struct nvj_partition *p, word *header,
				     const uint8_t *image)
{
	const struct nvj_persistence *way = j->persistence;
	uint64_t place = nvj_remainder(&j->by_ring, header[1]);
	uint8_t *start = p->lines + place * NVJ_LINE_BYTES, *to = start + NVJ_LINE_BYTES;

	if (NVJ_UNLIKELY(place + lines_of(header) > j->by_ring.by)) {
		header[0] |= (uint64_t)crc_of(j, header, image) << 32;
		nvj_record_write(&j->geometry, way, p->index, (const void *)header, image);
		return;
	}
	for (uint64_t left = header[4] & ~header[5]; left;) {
		unsigned count, first = nvj_take_run(&left, &count);

		way->write(way, to, image + first * NVJ_LINE_BYTES, count * NVJ_LINE_BYTES);
		to += count * NVJ_LINE_BYTES;
	}
	header[0] |= (uint64_t)crc_of(j, header, image) << 32;
	way->write(way, start, header, NVJ_LINE_BYTES);
}

/* Places a record that is not kept, and all that are kept. */
static NVJ_INLINED int place_record(struct nvj_handle *h, word *header, const uint8_t *image)
{
	struct nvj *j = h->journal;
	struct nvj_partition *ring = ring_of(h, header[3]);
	unsigned before = j->geometry.by_cpu ? h->kept_lines : 0;
	int64_t position;
	int error = 0;

	/* With one ring for all, this is one reservation. */
	if (!before && h->kept_lines)
		error = nvj_handle_write(h);
	if (NVJ_UNLIKELY(error))
		return error;
	if (NVJ_UNLIKELY(h->placed == NVJ_HANDLE_BLOCKS))
		nvj_handle_set_flags(h);
	position = reserve(h, ring, before + lines_of(header));
	if (NVJ_UNLIKELY(position < 0))
		return (int)position;
	if (before)
		write_kept(j, ring, (uint64_t)position, kept(h), before);
	h->kept_lines = 0;
	header[0] = NVJ_RECORD_MAGIC;
	header[1] = (uint64_t)position + before;
	write_record(j, ring, header, image);
	return 0;
}

static NVJ_INLINED int record_log(struct nvj_handle *h, struct nvj_block *b,
				  enum nvj_record_kind kind, uint64_t mask, const void *caller)
{
	struct nvj *j = h->journal;
	struct nvj_cpu *c = &j->cpu[h->cpu];
	uint8_t *image = mask ? b->image->bytes : NULL;
	unsigned slot = h->tid & (NVJ_SLOTS - 1), lines = 1 + nvj_popcount(mask);
	word own[8] __attribute__((aligned(NVJ_LINE_BYTES))), *header = own;
	bool first = h->placed + h->kept_lines == 0, keep;
	uint64_t zeros;

	/*
	 * Before the handle ends, so that the thread that closes the
	 * transaction knows that it is not empty.
	 */
	if (NVJ_UNLIKELY(nvj_load(&c->dirty[slot]) != h->tid))
		nvj_store_release(&c->dirty[slot], h->tid);
	/*
	 * After a record that takes all credits no other record follows: write
	 * it at once.
	 */
	keep = lines < h->credits && lines <= NVJ_HANDLE_LINES - h->kept_lines;
	if (keep) {
		header = (word *)(void *)(kept(h) + h->kept_lines * NVJ_LINE_BYTES);
		zeros = nvj_copy_lines(image, (uint8_t *)(header + 8), caller, mask);
	} else {
		zeros = nvj_copy_lines(image, NULL, caller, mask);
	}
	if (NVJ_UNLIKELY(zeros))
		lines -= nvj_popcount(zeros);
	/*
	 * Stored in words, because it is summed and written in words. A larger
	 * load would have to wait. Position and CRC follow.
	 */
	header[2] = h->tid;
	header[3] = b->number;
	header[4] = mask;
	header[5] = zeros;
	header[6] = (uint64_t)kind | (uint64_t)lines << 16;
	/* The order of the block's records, in whatever ring they are. */
	header[7] = ++b->sequence;
	if (keep) {
		h->kept_lines += lines;
	} else {
		int error = place_record(h, header, image);

		if (NVJ_UNLIKELY(error))
			return error;
	}
	count_record(b, first, zeros);
	h->credits -= lines < h->credits ? lines : h->credits;
	return (int)lines;
}

int nvj_record_log(struct nvj_handle *h, struct nvj_block *b, enum nvj_record_kind kind,
		   uint64_t mask, const void *caller)
{
	return record_log(h, b, kind, mask, caller);
}

int nvj_block_log(struct nvj_handle *h, struct nvj_block *b, const uint8_t *caller, uint64_t mask,
		  enum nvj_record_kind kind)
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
		mask = nvj_lines_that_differ(b->image->bytes, caller);
	if (mask == 0)
		return 0;
	/*
	 * Nothing is changed yet: a handle that logs too many lines leaves no
	 * trace.
	 */
	if (NVJ_UNLIKELY(1u + nvj_popcount(mask) > h->credits) &&
	    nvj_record_lines(mask, nvj_zero_lines(caller, mask)) > h->credits)
		return NVJ_ENOSPC;
	if (b->image->tid && b->image->tid < h->tid && b->image->tid > b->home_tid &&
	    NVJ_UNLIKELY(!nvj_freeze(j, b)))
		return NVJ_ENOMEM;
	if (b->frozen)
		nvj_keep_lines(b, mask);

	if (b->image->tid < h->tid)
		b->image->tid = h->tid;
	nvj_block_dirty(j, b);
	lines = record_log(h, b, kind, mask, caller);
	if (NVJ_LIKELY(lines > 0))
		b->created = false;
	return lines;
}

static NVJ_INLINED int log_kind(struct nvj_handle *h, uint64_t block, const void *image,
				uint64_t mask, enum nvj_record_kind kind)
{
	struct nvj *j = h->journal;
	struct nvj_block *b;
	int lines;

	if (NVJ_UNLIKELY(nvj_load(&j->aborted)))
		return NVJ_EROFS;
	b = nvj_block_lock_accessed(h, block);
	if (NVJ_UNLIKELY(!b))
		return NVJ_EINVAL;
	lines = nvj_block_log(h, b, image, mask, kind);
	nvj_block_unlock(j, b);
	if (lines <= 0)
		return lines;

	if (kind == NVJ_DATA)
		nvj_count(&j->cpu[h->cpu].data_records, 1);
	nvj_handle_placed(h);
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
