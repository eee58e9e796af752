/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * A record of a partition's ring: its CRC, how it is written into the ring, and
 * the checks of a record that was read. The bits of a mask form runs. Each run
 * is one piece of memory in the block's image, so it is summed and copied as
 * one piece.
 */
#include "format.h"

static unsigned lowest(uint64_t mask)
{
	return (unsigned)__builtin_ctzll(mask);
}

uint32_t nvj_record_crc_header(uint32_t seed, const struct nvj_disk_record *header)
{
	struct nvj_disk_record copy = *header;

	copy.crc = 0;
	return nvj_crc32c(seed, &copy, sizeof(copy));
}

uint32_t nvj_record_crc_image(uint32_t seed, const struct nvj_disk_record *header,
			      const void *image)
{
	uint32_t crc = nvj_record_crc_header(seed, header);
	uint64_t left = header->mask & ~header->zeros;

	while (left) {
		unsigned count, first = nvj_take_run(&left, &count);

		crc = nvj_crc32c(crc, (const uint8_t *)image + first * NVJ_LINE_BYTES,
				 count * NVJ_LINE_BYTES);
	}
	return crc;
}

uint32_t nvj_record_crc_packed(uint32_t seed, const struct nvj_disk_record *header,
			       const void *lines)
{
	return nvj_crc32c(nvj_record_crc_header(seed, header), lines,
			  (header->lines - 1u) * NVJ_LINE_BYTES);
}

void nvj_record_begin(struct nvj_disk_record *header, enum nvj_record_kind kind, uint64_t position,
		      uint64_t tid, uint64_t block, uint64_t sequence, uint64_t mask,
		      uint64_t zeros)
{
	*header = (struct nvj_disk_record){
		.magic = NVJ_RECORD_MAGIC,
		.position = position,
		.tid = tid,
		.block = block,
		.mask = mask,
		.zeros = zeros,
		.kind = (uint16_t)kind,
		.lines = (uint16_t)nvj_record_lines(mask, zeros),
		.sequence = sequence,
	};
}

/*
 * Writes lines to a position. Lines beyond the end of the ring go to its start.
 */
static void write_lines(const struct nvj_geometry *g, const struct nvj_persistence *p,
			uint32_t partition, uint64_t position, const uint8_t *from, uint64_t count)
{
	uint64_t to_end = nvj_lines_to_end(g, position);

	if (count > to_end) {
		p->write(p, nvj_line_at(g, partition, position), from, to_end * NVJ_LINE_BYTES);
		position += to_end;
		from += to_end * NVJ_LINE_BYTES;
		count -= to_end;
	}
	p->write(p, nvj_line_at(g, partition, position), from, count * NVJ_LINE_BYTES);
}

void nvj_record_write(const struct nvj_geometry *g, const struct nvj_persistence *p,
		      uint32_t partition, const struct nvj_disk_record *header, const void *image)
{
	uint64_t left = header->mask & ~header->zeros;
	uint64_t position = header->position;

	/*
	 * There is no order between header and lines: the CRC detects a torn
	 * record, and the fence of a commit comes after all of them.
	 */
	write_lines(g, p, partition, position++, (const uint8_t *)header, 1);
	while (left) {
		unsigned count, first = nvj_take_run(&left, &count);

		write_lines(g, p, partition, position,
			    (const uint8_t *)image + first * NVJ_LINE_BYTES, count);
		position += count;
	}
}

bool nvj_record_plausible(const struct nvj_geometry *g, uint32_t partition, uint64_t position,
			  const struct nvj_disk_record *header, uint64_t max_tid)
{
	if (header->magic != NVJ_RECORD_MAGIC || header->position != position)
		return false;
	if (header->kind < NVJ_UPDATE || header->kind > NVJ_REVOKE)
		return false;
	if (header->zeros & ~header->mask ||
	    header->lines != nvj_record_lines(header->mask, header->zeros))
		return false;
	/*
	 * A revoke has no lines. Records of all other kinds have lines, which
	 * may be zero.
	 */
	if ((header->kind == NVJ_REVOKE) != (header->mask == 0))
		return false;
	if (!g->by_cpu && header->block % g->partitions != partition)
		return false;
	return header->tid > 0 && header->tid <= max_tid;
}

void nvj_record_apply(const struct nvj_disk_record *header, uint64_t number, const void *lines,
		      void *image, uint64_t order[NVJ_BLOCK_LINES])
{
	const uint8_t *from = lines;

	for (uint64_t left = header->mask; left; left &= left - 1) {
		unsigned line = lowest(left);
		uint8_t *to = (uint8_t *)image + line * NVJ_LINE_BYTES;
		bool zero = header->zeros >> line & 1, later = number > order[line];

		if (later)
			order[line] = number;
		if (later && zero)
			__builtin_memset(to, 0, NVJ_LINE_BYTES);
		else if (later)
			__builtin_memcpy(to, from, NVJ_LINE_BYTES);
		if (!zero)
			from += NVJ_LINE_BYTES;
	}
}
