/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The format, as functions of values: where things lie in a region, and how the
 * structs of nvjournal.h are sealed and told from damage. docs/nvjournal-format.md
 * has the byte map. What is read from a region is hostile until it is checked here.
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

/* Where everything is. Made by nvj_geometry of a superblock that was checked. */
struct nvj_geometry {
	uint8_t *base;             /* of the region */
	uint64_t size_bytes;       /* to the end of the last partition; not more than the region */
	uint64_t partition_offset; /* bytes */
	uint64_t ring_lines;
	uint32_t partitions;
	uint32_t commits;      /* a power of two */
	uint32_t commit_lines; /* of each commit record */
	uint32_t seed;         /* of all CRCs but the superblock's */
	int (*read)(void *to, const void *from, size_t bytes); /* of the region; may be NULL */
};

/* Copies out of a region. False: the memory there fails, and what is at to is of no use. */
static inline bool nvj_copy_out(int (*read)(void *to, const void *from, size_t bytes), void *to,
				const void *from, size_t bytes)
{
	if (read && read(to, from, bytes))
		return false;
	if (!read)
		__builtin_memcpy(to, from, bytes);
	/* From here on only the copy counts: the region could change under us. */
	__asm__ volatile("" ::: "memory");
	return true;
}

/*
 * Checks every field of a superblock against each other and the region's size.
 * 0 and the geometry, or NVJ_EUCLEAN: nothing was written to it.
 */
int nvj_geometry(const struct nvj_region *region, const struct nvj_disk_super *super,
		 struct nvj_geometry *geometry);

static inline uint64_t nvj_offset_of_commit(const struct nvj_geometry *g, uint64_t tid)
{
	return NVJ_COMMITS_OFFSET +
	       (tid & (g->commits - 1)) * ((uint64_t)g->commit_lines * NVJ_LINE_BYTES);
}

static inline uint64_t nvj_offset_of_line(const struct nvj_geometry *g, uint32_t partition,
					  uint64_t position)
{
	return g->partition_offset +
	       (partition * g->ring_lines + position % g->ring_lines) * NVJ_LINE_BYTES;
}

/* The slot of a transaction, commit_lines lines. */
static inline struct nvj_disk_commit *nvj_commit_at(const struct nvj_geometry *g, uint64_t tid)
{
	return (struct nvj_disk_commit *)(void *)(g->base + nvj_offset_of_commit(g, tid));
}

/* The line at a position of a ring. The next line is not always behind it: see nvj_lines_to_end. */
static inline void *nvj_line_at(const struct nvj_geometry *g, uint32_t partition, uint64_t position)
{
	return g->base + nvj_offset_of_line(g, partition, position);
}

/* Lines from a position to the end of the ring's memory, where it goes on at its first line. */
static inline uint64_t nvj_lines_to_end(const struct nvj_geometry *g, uint64_t position)
{
	return g->ring_lines - position % g->ring_lines;
}

static inline uint64_t *nvj_tail_at(const struct nvj_geometry *g, unsigned copy)
{
	return (uint64_t *)(void *)(g->base + (copy ? NVJ_TAIL_COPY_OFFSET : NVJ_TAIL_OFFSET));
}

/* --- Superblock ---------------------------------------------------------- */

/* The CRC of the 128 bytes with crc as 0, begun with ~0. */
uint32_t nvj_super_crc(const struct nvj_disk_super *super);

/* What CRCs of a journal of this UUID begin with. */
uint32_t nvj_seed_of(const uint8_t uuid[16]);

/*
 * Reads both copies. 0: super is sound and its geometry is checked; *damaged has
 * bit n if copy n is not as the other. NVJ_ENODATA, NVJ_EFORMAT, NVJ_EUCLEAN
 * (*layout: a copy has a right CRC but sizes that cannot be), NVJ_EINVAL (region).
 */
int nvj_super_read(const struct nvj_region *region, struct nvj_disk_super *super,
		   struct nvj_geometry *geometry, unsigned *damaged, bool *layout);

/* --- Tail ---------------------------------------------------------------- */

uint64_t nvj_tail_encode(uint32_t seed, uint64_t tid);

/* The transaction of a tail word; false: damaged. */
bool nvj_tail_decode(uint32_t seed, uint64_t word, uint64_t *tid);

/* Whether a copy of the tail can be read and is this word. */
bool nvj_tail_is(const struct nvj_geometry *g, unsigned copy, uint64_t word);

/*
 * Reads both copies: the newer one's transaction. *damaged has bit n if copy n
 * is damaged. False: both are.
 */
bool nvj_tail_read(const struct nvj_geometry *g, uint64_t *tid, unsigned *damaged);

/*
 * Moves the tail, in both copies, and fences. The caller has flushed the disk:
 * all up to tid is at home for good. Only after the return may slots and lines
 * be used again that the old tail still needed.
 */
void nvj_tail_write(const struct nvj_geometry *g, const struct nvj_persistence *p, uint64_t tid);

/* --- Commit record ------------------------------------------------------- */

/* A commit record in memory, of any number of partitions; as struct nvj_disk_commit. */
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
 * Begins a record in memory: all zero but tid, kind, partitions and time. The
 * caller then fills low and high of each partition.
 */
void nvj_commit_begin(const struct nvj_geometry *g, struct nvj_commit_buffer *b, uint64_t tid,
		      enum nvj_commit_kind kind, uint64_t time_ns);

/* The seal of the record: of its tid, and of all its lines with seal as 0. */
uint64_t nvj_commit_seal(const struct nvj_geometry *g, const struct nvj_commit_buffer *b);

/*
 * The two halves of a commit. nvj_commit_write_body writes all but the seal (the
 * slot keeps the one of its last lap; the new one is in b then) and does not fence.
 * Then the caller fences: this is the fence before the seal. nvj_commit_write_seal
 * stores it, without a fence. Seals become persistent in the order of their tids:
 * fence between them.
 */
void nvj_commit_write_body(const struct nvj_geometry *g, const struct nvj_persistence *p,
			   struct nvj_commit_buffer *b);
/* Of a record whose body was written. */
void nvj_commit_write_seal(const struct nvj_geometry *g, const struct nvj_persistence *p,
			   const struct nvj_commit_buffer *b);

enum nvj_slot_state {
	NVJ_SLOT_SEALED,
	NVJ_SLOT_NOT_YET,
	NVJ_SLOT_DAMAGED,
};

/*
 * What the slot of tid says of tid. If sealed, the whole record is in b. The
 * state table is in docs/nvjournal-format.md.
 */
enum nvj_slot_state nvj_commit_read(const struct nvj_geometry *g, uint64_t tid,
				    struct nvj_commit_buffer *b);

/* --- Record -------------------------------------------------------------- */

/* How many bits are set: by hand, as a compiler may call a library for it. */
static inline unsigned nvj_popcount(uint64_t bits)
{
	bits -= bits >> 1 & UINT64_C(0x5555555555555555);
	bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
	bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	return (unsigned)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* Takes the lowest run of ones out of *mask, not 0; its first bit, and how long it is. */
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

/* Lines of the record of this mask, header included: 1..65. */
static inline unsigned nvj_record_lines(uint64_t mask, uint64_t zeros)
{
	return 1u + nvj_popcount(mask & ~zeros);
}

/* The CRC of the header with crc as 0. Go on with nvj_crc32c over the lines, in order. */
uint32_t nvj_record_crc_header(uint32_t seed, const struct nvj_disk_record *header);

/* The CRC of header and those lines of a block's image that mask & ~zeros names. */
uint32_t nvj_record_crc_image(uint32_t seed, const struct nvj_disk_record *header,
			      const void *image);

/* The CRC of header and its lines - 1 lines, packed. */
uint32_t nvj_record_crc_packed(uint32_t seed, const struct nvj_disk_record *header,
			       const void *lines);

/*
 * Fills a header, all but its crc: lines is of the masks, reserved is 0. Then
 *	header.crc = nvj_record_crc_image(seed, &header, image);
 */
void nvj_record_begin(struct nvj_disk_record *header, enum nvj_record_kind kind, uint64_t position,
		      uint64_t tid, uint64_t block, uint64_t mask, uint64_t zeros);

/*
 * Writes the record to its position, over the end of the ring if need be: the
 * header as it is, crc included, and the image's lines of mask & ~zeros. No fence.
 * image may be NULL if there are none.
 */
void nvj_record_write(const struct nvj_geometry *g, const struct nvj_persistence *p,
		      uint32_t partition, const struct nvj_disk_record *header, const void *image);

/*
 * A header that was copied out of position of a ring: true if everything but its
 * CRC is as it must be (magic, position, kind, masks, lines, block's partition;
 * tid is 1..max_tid).
 */
bool nvj_record_plausible(const struct nvj_geometry *g, uint32_t partition, uint64_t position,
			  const struct nvj_disk_record *header, uint64_t max_tid);

/* Puts a record's lines, packed, onto a block's image. */
void nvj_record_apply(const struct nvj_disk_record *header, const void *lines, void *image);

#endif
