/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways to persist: found by name, and each stores exactly what it is given,
 * where it is told to, and nothing beside it. That a flush flushes cannot be seen
 * from here.
 *
 * "rest_persist measure" says instead how long each takes, in ordinary memory:
 * nanoseconds for a record of so many lines and its fence, and for its CRC.
 */
#include <time.h>
#include "rest.h"
#include "../core/persist.h"

static void stores_what_it_is_given(const struct nvj_persistence *p)
{
	_Alignas(64) static uint8_t to[66 * 64], want[66 * 64];
	static uint8_t any[65 * 64 + 1];
	uint8_t *from = any + 1; /* the source may lie anywhere */

	for (unsigned lines = 0; lines <= 64; lines++) {
		memset(to, 0xee, sizeof(to));
		memset(want, 0xee, sizeof(want));
		for (unsigned i = 0; i < lines * 64; i++)
			want[64 + i] = from[i] = (uint8_t)(i * 31 + lines);
		p->write(p, to + 64, from, lines * 64);
		p->fence(p);
		expect(!memcmp(to, want, sizeof(to)));
	}
	for (unsigned i = 0; i < 8; i++) {
		uint64_t value = 0x0123456789abcdefu + i;

		p->store64(p, (uint64_t *)(void *)(to + 8 * i), value);
		memcpy(want + 8 * i, &value, 8);
		p->fence(p);
		expect(!memcmp(to, want, sizeof(to)));
	}
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static const unsigned measured_lines[] = {1, 2, 5, 9, 33, 65};
#define MEASURED 6u

/* The quickest of some runs, each through memory that is in no cache. */
static void measure_way(const struct nvj_persistence *p, uint8_t *memory, size_t bytes)
{
	static const uint8_t from[65 * 64];
	const unsigned writes = 4000;

	printf("%-12s", p->name);
	for (unsigned i = 0; i < MEASURED; i++) {
		size_t record = measured_lines[i] * 64;
		double best = 1e18;

		for (unsigned run = 0; run < 8; run++) {
			size_t at = run * (bytes / 8) % (bytes - writes * record);
			double begin = now_ns(), ns;

			for (unsigned n = 0; n < writes; n++, at += record) {
				p->write(p, memory + at, from, record);
				p->fence(p);
			}
			ns = (now_ns() - begin) / writes;
			best = ns < best ? ns : best;
		}
		printf(" %5.0f", best);
	}
	printf("\n");
}

static void measure(void)
{
	const size_t bytes = 256u << 20;
	uint8_t *memory = aligned_alloc(64, bytes);
	uint32_t crc = 1;

	expect(memory);
	memset(memory, 1, bytes);
	printf("lines       ");
	for (unsigned i = 0; i < MEASURED; i++)
		printf(" %5u", measured_lines[i]);
	printf("\n");
	for (unsigned i = 0; i < nvj_persist_way_count; i++)
		if (nvj_persist_ways[i].available())
			measure_way(&nvj_persist_ways[i].table, memory, bytes);
	measure_way(nvj_persistence("none"), memory, bytes);
	printf("CRC         ");
	for (unsigned i = 0; i < MEASURED; i++) {
		const unsigned rounds = 10000;
		double best = 1e18;

		for (unsigned run = 0; run < 20; run++) {
			double begin = now_ns(), ns;

			for (unsigned n = 0; n < rounds; n++)
				crc = nvj_crc32c(crc, memory, measured_lines[i] * 64);
			ns = (now_ns() - begin) / rounds;
			best = ns < best ? ns : best;
		}
		printf(" %5.0f", best);
	}
	printf("\n(%08x)\n", crc);
	free(memory);
}

int main(int count, char **arguments)
{
	const struct nvj_persistence *best = nvj_persistence(NULL);
	unsigned found = 0;

	if (count == 2 && !strcmp(arguments[1], "measure")) {
		measure();
		return 0;
	}
	for (unsigned i = 0; i < nvj_persist_way_count; i++) {
		const struct nvj_persistence *p = nvj_persistence(nvj_persist_ways[i].table.name);

		expect(!p == !nvj_persist_ways[i].available());
		if (!p)
			continue;
		expect(p == &nvj_persist_ways[i].table);
		if (!found++)
			expect(best == p);
		printf("%s\n", p->name);
		stores_what_it_is_given(p);
	}
	expect(found || !best);
	expect(!best || strcmp(best->name, "none"));
	stores_what_it_is_given(nvj_persistence("none"));
	expect(!strcmp(nvj_persistence("none")->name, "none"));
	expect(!nvj_persistence("") && !nvj_persistence("n") && !nvj_persistence("none "));
#if defined(__x86_64__)
	expect(best && !strcmp(best->name, "nt"));
#endif
	return 0;
}
