/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The format, as functions of values: the places of all parts in a region, and
 * how the structures of nvjournal.h are sealed and checked.
 * docs/nvjournal-format.md has the byte map. Data read from a region are not
 * trusted until they are checked here.
 */
#ifndef NVJ_FORMAT_H
#define NVJ_FORMAT_H

#include "../include/nvjournal.h"
#include "crc32c.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "integers in the region are little-endian, and so must the processor be"
#endif

/* --- Geometry ------------------------------------------------------------ */

#define NVJ_MAX_COMMIT_LINES 17u /* nvj_commit_lines(NVJ_MAX_PARTITIONS) */

/*
 * The places of all parts. nvj_geometry computes it from a checked superblock.
 */
struct nvj_geometry {
	uint8_t *base;       /* of the region */
	uint64_t size_bytes; /* to the end of the last partition; at most the size of the region */
	uint64_t partition_offset; /* bytes */
	uint64_t ring_lines;
	uint32_t partitions;
	uint32_t commits;      /* a power of two */
	uint32_t commit_lines; /* of each commit record */
	uint32_t seed;         /* of all CRCs except that of the superblock */
	bool sequenced;        /* records have sequence numbers: not in version 1 */
	bool by_cpu;           /* NVJ_PLACE_CPU: a ring has records of any block */
	int (*read)(void *to, const void *from, size_t bytes); /* of the region; may be NULL */
};

/*
 * Copies data out of a region. False: the memory fails, and the data at `to`
 * are not valid.
 */
static inline bool nvj_copy_out(int (*read)(void *to, const void *from, size_t bytes), void *to,
				const void *from, size_t bytes)
{
	if (read && read(to, from, bytes))
		return false;
	if (!read)
		__builtin_memcpy(to, from, bytes);
	/*
	 * From here on only the copy is used, because the region could change.
	 */
	__asm__ volatile("" ::: "memory");
	return true;
}

/*
 * Checks every field of a superblock against the others and against the
 * region's size. Returns 0 and the geometry, or NVJ_EUCLEAN and leaves the
 * geometry unchanged.
 */
int nvj_geometry(const struct nvj_region *region, const struct nvj_disk_super *super,
		 struct nvj_geometry *geometry);

static inline uint64_t nvj_offset_of_commit(const struct nvj_geometry *g, uint64_t tid)
{
	return NVJ_COMMITS_OFFSET +
	       (tid & (g->commits - 1)) * ((uint64_t)g->commit_lines * NVJ_LINE_BYTES);
}

/*
 * The highest position in a commit record: higher than all in the life of a journal, and far
 * from 2^56, from where on a flag has not all bits of a position (partition.h).
 */
#define NVJ_MAX_POSITION (UINT64_C(1) << 55)

static inline uint64_t nvj_offset_of_line(const struct nvj_geometry *g, uint32_t partition,
					  uint64_t position)
{
	return g->partition_offset +
	       (partition * g->ring_lines + position % g->ring_lines) * NVJ_LINE_BYTES;
}

/* The slot of a transaction: commit_lines lines. */
static inline struct nvj_disk_commit *nvj_commit_at(const struct nvj_geometry *g, uint64_t tid)
{
	return (struct nvj_disk_commit *)(void *)(g->base + nvj_offset_of_commit(g, tid));
}

/*
 * The line at a position of a ring. The next line is not always after it in
 * memory: see nvj_lines_to_end.
 */
static inline void *nvj_line_at(const struct nvj_geometry *g, uint32_t partition, uint64_t position)
{
	return g->base + nvj_offset_of_line(g, partition, position);
}

/*
 * The number of lines from a position to the end of the ring's memory. There
 * the ring continues at its first line.
 */
static inline uint64_t nvj_lines_to_end(const struct nvj_geometry *g, uint64_t position)
{
	return g->ring_lines - position % g->ring_lines;
}

static inline uint64_t *nvj_tail_at(const struct nvj_geometry *g, unsigned copy)
{
	return (uint64_t *)(void *)(g->base + (copy ? NVJ_TAIL_COPY_OFFSET : NVJ_TAIL_OFFSET));
}

/* --- Superblock ---------------------------------------------------------- */

/* The CRC of the 128 bytes with crc as 0, starting with ~0. */
uint32_t nvj_super_crc(const struct nvj_disk_super *super);

/* Makes the newest version of an older superblock. The rings stay the same. */
void nvj_super_upgrade(struct nvj_disk_super *super);

/* The start value of the CRCs of a journal with this UUID. */
uint32_t nvj_seed_of(const uint8_t uuid[16]);

/*
 * Reads both copies. 0: super is sound and its geometry is checked; bit n of
 * *damaged is set if copy n differs from the other. NVJ_ENODATA, NVJ_EFORMAT,
 * NVJ_EUCLEAN (*layout: a copy has a correct CRC but impossible sizes),
 * NVJ_EINVAL (the region).
 */
int nvj_super_read(const struct nvj_region *region, struct nvj_disk_super *super,
		   struct nvj_geometry *geometry, unsigned *damaged, bool *layout);

/* --- Tail ---------------------------------------------------------------- */

uint64_t nvj_tail_encode(uint32_t seed, uint64_t tid);

/* The transaction in a word of the tail. False: the word is damaged. */
bool nvj_tail_decode(uint32_t seed, uint64_t word, uint64_t *tid);

/* Says whether a copy of the tail can be read and is this word. */
bool nvj_tail_is(const struct nvj_geometry *g, unsigned copy, uint64_t word);

/*
 * Reads both copies and returns the transaction of the newer one. Bit n of
 * *damaged is set if copy n is damaged. False: both are.
 */
bool nvj_tail_read(const struct nvj_geometry *g, uint64_t *tid, unsigned *damaged);

/*
 * Moves both copies of the tail, and fences. The caller has flushed the disk:
 * all blocks up to tid are persistent at home. Slots and lines that the old
 * tail still needed may be reused only after the return.
 */
void nvj_tail_write(const struct nvj_geometry *g, const struct nvj_persistence *p, uint64_t tid);

/* --- Commit record ------------------------------------------------------- */

/*
 * A commit record in memory, for any number of partitions; see struct
 * nvj_disk_commit.
 */
struct nvj_commit_buffer {
	_Alignas(NVJ_LINE_BYTES) uint64_t seal;
	uint64_t tid;
	uint32_t kind;
	uint32_t partitions;
	uint64_t time_ns;
	struct {
		uint64_t low, high;
	} at[NVJ_MAX_PARTITIONS];
	uint8_t unused[32]; /* the rest of the last line */
};
_Static_assert(sizeof(struct nvj_commit_buffer) == NVJ_MAX_COMMIT_LINES * NVJ_LINE_BYTES &&
		       offsetof(struct nvj_commit_buffer, at) == sizeof(struct nvj_disk_commit),
	       "commit record in memory");

/*
 * Starts a record in memory: everything is zero except tid, kind, partitions
 * and time. The caller then fills in low and high of each partition.
 */
void nvj_commit_begin(const struct nvj_geometry *g, struct nvj_commit_buffer *b, uint64_t tid,
		      enum nvj_commit_kind kind, uint64_t time_ns);

/*
 * The seal of the record: computed from its tid, and from all its lines with
 * seal as 0.
 */
uint64_t nvj_commit_seal(const struct nvj_geometry *g, const struct nvj_commit_buffer *b);

/*
 * The two halves of a commit. nvj_commit_write_body writes everything except
 * the seal, and does not fence. The slot keeps the seal of the previous lap;
 * the new seal is then in b. The caller fences: this is the fence before the
 * seal. nvj_commit_write_seal stores the seal and does not fence. Seals must
 * become persistent in the order of their tids: fence between them.
 */
void nvj_commit_write_body(const struct nvj_geometry *g, const struct nvj_persistence *p,
			   struct nvj_commit_buffer *b);
/* The body of the record was written before. */
void nvj_commit_write_seal(const struct nvj_geometry *g, const struct nvj_persistence *p,
			   const struct nvj_commit_buffer *b);

enum nvj_slot_state {
	NVJ_SLOT_SEALED,
	NVJ_SLOT_NOT_YET,
	NVJ_SLOT_DAMAGED,
};

/*
 * The state of the slot of tid with respect to tid. If it is sealed, the whole
 * record is in b. docs/nvjournal-format.md has the table of states.
 */
enum nvj_slot_state nvj_commit_read(const struct nvj_geometry *g, uint64_t tid,
				    struct nvj_commit_buffer *b);

/* --- Record -------------------------------------------------------------- */

/*
 * The number of set bits. It has its own code, because a compiler may call a
 * library function for it.
 */
static inline unsigned nvj_popcount(uint64_t bits)
{
	bits -= bits >> 1 & UINT64_C(0x5555555555555555);
	bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
	bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (unsigned)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/*
 * Removes the lowest run of ones from *mask, which is not 0. Returns its first
 * bit and its length.
 */
static inline unsigned nvj_take_run(uint64_t *mask, unsigned *length)
{
	unsigned first = (unsigned)__builtin_ctzll(*mask);
	uint64_t ones = ~(*mask >> first);

	*length = ones ? (unsigned)__builtin_ctzll(ones) : NVJ_BLOCK_LINES;
	if (*length < NVJ_BLOCK_LINES)
		*mask &= ~(((UINT64_C(1) << *length) - 1) << first);
	else
		*mask = 0;
	return first;
}

/* Lines of the record with this mask, including the header: 1..65. */
static inline unsigned nvj_record_lines(uint64_t mask, uint64_t zeros)
{
	return 1u + nvj_popcount(mask & ~zeros);
}

/*
 * The CRC of the header with crc as 0. Continue with nvj_crc32c over the lines,
 * in order.
 */
uint32_t nvj_record_crc_header(uint32_t seed, const struct nvj_disk_record *header);

/*
 * The CRC of the header and of the lines of a block's image in mask & ~zeros.
 */
uint32_t nvj_record_crc_image(uint32_t seed, const struct nvj_disk_record *header,
			      const void *image);

/* The CRC of the header and its lines - 1 packed lines. */
uint32_t nvj_record_crc_packed(uint32_t seed, const struct nvj_disk_record *header,
			       const void *lines);

/*
 * Fills a header except its crc: lines follows from the masks. Then
 *
 * 	header.crc = nvj_record_crc_image(seed, &header, image);
 */
void nvj_record_begin(struct nvj_disk_record *header, enum nvj_record_kind kind, uint64_t position,
		      uint64_t tid, uint64_t block, uint64_t sequence, uint64_t mask,
		      uint64_t zeros);

/*
 * Writes the record to its position, and continues at the start of the ring if
 * necessary: the header with its crc, and the lines of the image in mask &
 * ~zeros. It does not fence. image may be NULL if there are no lines.
 */
void nvj_record_write(const struct nvj_geometry *g, const struct nvj_persistence *p,
		      uint32_t partition, const struct nvj_disk_record *header, const void *image);

/*
 * Checks a header that was copied from a position of a ring. True: everything
 * except the CRC is valid (magic, position, kind, masks, lines, the partition
 * of the block; tid is 1..max_tid).
 */
bool nvj_record_plausible(const struct nvj_geometry *g, uint32_t partition, uint64_t position,
			  const struct nvj_disk_record *header, uint64_t max_tid);

/*
 * Copies the packed lines of a record to a block's image. order has a number for
 * each line of the block: of the latest record that changed it so far, or 0. If
 * the record's number is lower than that of a line, the line does not change.
 */
void nvj_record_apply(const struct nvj_disk_record *header, uint64_t number, const void *lines,
		      void *image, uint64_t order[NVJ_BLOCK_LINES]);

#endif
