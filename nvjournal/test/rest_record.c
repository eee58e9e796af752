/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record: its CRC is the same in pieces, by mask and packed; what is written
 * to the ring comes back onto an image, at every place of the ring; what is not
 * plausible is refused.
 */
#include "rest.h"

static uint64_t random64(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Packs as the format says: one line for each bit of mask that is not in zeros. */
static void pack(uint64_t mask, const uint8_t *image, uint8_t *lines)
{
	for (unsigned n = 0; n < 64; n++)
		if (mask >> n & 1) {
			memcpy(lines, image + n * 64, 64);
			lines += 64;
		}
}

static void round_trip(struct rest *t, uint64_t mask, uint64_t zeros)
{
	uint32_t partition = (uint32_t)(random64() % 3);
	/* Often over the end of the ring. */
	uint64_t position = random64() % 1000 * 1024 + 1024 - random64() % 70;
	_Alignas(64) uint8_t image[4096], lines[4096] = {0}, back[4096], old[4096];
	struct nvj_disk_record h, read;
	uint64_t order[NVJ_BLOCK_LINES];
	uint32_t crc;

	for (unsigned i = 0; i < 4096; i++) {
		image[i] = zeros >> i / 64 & 1 ? 0 : (uint8_t)random64();
		old[i] = back[i] = (uint8_t)random64();
	}
	pack(mask & ~zeros, image, lines);
	nvj_record_begin(&h, mask ? NVJ_UPDATE : NVJ_REVOKE, position, 9, 300 + partition, 7, mask,
			 zeros);
	crc = nvj_record_crc_image(t->g.seed, &h, image);
	expect(crc == nvj_record_crc_packed(t->g.seed, &h, lines));
	h.crc = crc;
	expect(crc == nvj_record_crc_image(t->g.seed, &h, image)); /* the field itself is 0 */
	nvj_record_write(&t->g, t->region.persistence, partition, &h, image);

	memcpy(&read, nvj_line_at(&t->g, partition, position), 64);
	expect(!memcmp(&read, &h, 64));
	expect(nvj_record_plausible(&t->g, partition, position, &read, 9));
	for (unsigned n = 0; n < h.lines - 1u; n++)
		expect(!memcmp(nvj_line_at(&t->g, partition, position + 1 + n), lines + 64 * n,
			       64));
	for (unsigned n = 0; n < NVJ_BLOCK_LINES; n++)
		order[n] = n % 3 == 0 ? 8 : 6; /* a third is of a later record */
	nvj_record_apply(&h, 7, lines, back, order);
	for (unsigned i = 0; i < 4096; i++)
		expect(back[i] == (mask >> i / 64 & 1 && i / 64 % 3 ? image[i] : old[i]));
	for (unsigned n = 0; n < NVJ_BLOCK_LINES; n++)
		expect(order[n] == (n % 3 == 0 ? 8u : mask >> n & 1 ? 7u : 6u));
}

static void round_trips(void)
{
	struct rest *t = rest_formatted(3, 1024);

	round_trip(t, 0, 0);
	round_trip(t, ~UINT64_C(0), 0);
	round_trip(t, ~UINT64_C(0), ~UINT64_C(0));
	for (unsigned n = 0; n < 64; n++)
		round_trip(t, UINT64_C(1) << n, 0);
	for (unsigned n = 0; n < 2000; n++) {
		uint64_t mask = random64() & (n & 1 ? random64() : ~UINT64_C(0));

		if (mask)
			round_trip(t, mask, mask & random64() & random64());
	}
	rest_free(t);
}

static void not_plausible(void)
{
	struct rest *t = rest_formatted(3, 1024);
	struct nvj_disk_record good, h;

	nvj_record_begin(&good, NVJ_DATA, 77, 5, 302, 1, 0xf0, 0x30);
	expect(good.lines == 3);
#define REFUSED(change)                                                                            \
	do {                                                                                       \
		h = good;                                                                          \
		expect(nvj_record_plausible(&t->g, 2, 77, &h, 5));                                 \
		change;                                                                            \
		expect(!nvj_record_plausible(&t->g, 2, 77, &h, 5));                                \
	} while (0)
	REFUSED(h.magic++);
	REFUSED(h.position += 1024); /* another lap's */
	REFUSED(h.tid = 0);
	REFUSED(h.tid = 6);
	REFUSED(h.block++); /* another partition's */
	REFUSED(h.kind = 0);
	REFUSED(h.kind = 4);
	REFUSED(h.kind = NVJ_REVOKE);
	REFUSED(h.lines = 0);
	REFUSED(h.lines = 2);
	REFUSED(h.lines = 66);
	REFUSED(h.zeros |= 1);
	REFUSED(h.mask = h.zeros = 0);
	h = good;
	h.block++;
	t->g.by_cpu = true;
	expect(nvj_record_plausible(&t->g, 2, 77, &h, 5)); /* in any ring */
	rest_free(t);
}

int main(void)
{
	round_trips();
	not_plausible();
	return 0;
}
