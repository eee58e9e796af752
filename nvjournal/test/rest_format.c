/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Format and superblock: what is made can be read; what cannot be is refused,
 * each field by itself, with its CRC made right, so that only the check of the
 * layout stands between it and memory that is not the region's.
 */
#include "rest.h"

#include <inttypes.h>

static struct nvj_disk_super *copy_of(struct rest *t, unsigned copy)
{
	return (struct nvj_disk_super *)(void *)(t->memory + (copy ? NVJ_SUPER_COPY_OFFSET : 0));
}

static void made_and_read(void)
{
	const uint32_t partitions[] = {1, 2, 3, 7, 8, 64};

	for (unsigned i = 0; i < sizeof(partitions) / sizeof(partitions[0]); i++)
		for (uint64_t extra = 0; extra < 3; extra++) {
			/* Sizes that do not come out even. */
			uint64_t size = (8u << 20) + extra * 12345 * 64;
			struct nvj_format_options o = rest_options;
			struct rest *t = rest_new(size);
			struct nvj_disk_super s;
			struct nvj_geometry g;
			struct nvj_report r;

			o.partitions = partitions[i];
			o.commits = 0;
			o.now_unix = 1234;
			o.disk_uuid[3] = 7;
			expect(nvj_format(&t->region, &o) == 0);
			expect(nvj_read_super(&t->region, &s) == 0);
			expect(s.partitions == partitions[i] && s.commits == 2048);
			expect(s.formatted_unix == 1234 && s.disk_uuid[3] == 7 &&
			       !memcmp(s.uuid, o.uuid, 16));
			expect(s.size_bytes <= size &&
			       size - s.size_bytes < 4096u * (s.partitions + 1));
			expect(s.partition_offset % 4096 == 0 && s.ring_lines % 64 == 0);
			expect(nvj_geometry(&t->region, &s, &g) == 0);
			expect(nvj_offset_of_line(&g, s.partitions - 1, s.ring_lines - 1) + 64 ==
			       s.size_bytes);
			expect(nvj_offset_of_line(&g, 0, s.ring_lines) == s.partition_offset);
			expect(nvj_offset_of_commit(&g, 2047) + 64 * s.commit_lines <=
			       s.partition_offset);
			expect(nvj_offset_of_commit(&g, 2048) == NVJ_COMMITS_OFFSET);
			expect(nvj_check(&t->region, &t->platform, &r) == 0);
			expect(r.clean && r.committed_tid == 0);
			rest_free(t);
		}
}

/* How many records the commit ring has if the caller does not say. */
static void usual_commits(void)
{
	const struct {
		uint64_t mebibytes;
		uint32_t partitions, commits;
	} sizes[] = {{1, 1, 256},     {16, 1, 4096},   {16, 64, 4096},
		     {64, 1, 16384},  {64, 8, 8192},   {64, 64, 4096},
		     {256, 1, 65536}, {256, 8, 32768}, {320, 1, 65536}};

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct nvj_format_options o = rest_options;
		struct rest *t;
		struct nvj_disk_super s;

		t = rest_new(sizes[i].mebibytes << 20);
		o.partitions = sizes[i].partitions;
		o.commits = 0;
		expect(nvj_format(&t->region, &o) == 0);
		expect(nvj_read_super(&t->region, &s) == 0);
		expect(s.commits == sizes[i].commits);
		rest_free(t);
	}
}

/*
 * How many partitions there are if the caller does not say: the table that the
 * volume manager's test reads, too.
 */
static void usual_partitions(void)
{
	const char *source = getenv("NVJ_SOURCE");
	uint64_t mebibytes;
	uint32_t processors, partitions;
	unsigned lines = 0;
	char path[4096], line[128];
	FILE *table;

	snprintf(path, sizeof(path), "%s/test/usual_partitions.txt", source ? source : ".");
	table = fopen(path, "r");
	expect(table);
	while (fgets(line, sizeof(line), table)) {
		if (*line == '#')
			continue;
		expect(sscanf(line, "%" SCNu64 " %" SCNu32 " %" SCNu32, &mebibytes, &processors,
			      &partitions) == 3);
		expect(nvj_usual_partitions(mebibytes << 20, processors) == partitions);
		lines++;
	}
	expect(lines >= 20);
	fclose(table);

	/* Each of these journals can be made, also with the most commits. */
	for (mebibytes = 1; mebibytes <= 128; mebibytes *= 2)
		for (processors = 1; processors <= 64; processors *= 4) {
			struct nvj_format_options o = rest_options;
			struct rest *t = rest_new(mebibytes << 20);
			struct nvj_disk_super s;

			o.partitions = nvj_usual_partitions(t->region.size_bytes, processors);
			o.commits = 0;
			expect(nvj_format(&t->region, &o) == 0);
			expect(nvj_read_super(&t->region, &s) == 0);
			/*
			 * The commit ring takes a part of the 8 MiB. All regions
			 * from 2 MiB on have what ext4's largest handle needs: a
			 * quarter of a ring, and three quarters of that.
			 */
			expect(s.partitions == 1 ||
			       s.ring_lines * NVJ_LINE_BYTES > NVJ_USUAL_PARTITION_BYTES * 9 / 10);
			expect(mebibytes < 2 || s.ring_lines / 4 >= 112 * NVJ_BLOCK_CREDITS);
			o.commits = mebibytes < 8 ? 0 : NVJ_MAX_COMMITS;
			expect(nvj_format(&t->region, &o) == 0);
			rest_free(t);
		}
}

static void refused_options(void)
{
	struct rest *t = rest_new(1 << 20);
	struct nvj_region region = t->region;
	struct nvj_format_options o;

#define REFUSED(change, error)                                                                     \
	do {                                                                                       \
		o = rest_options;                                                                  \
		change;                                                                            \
		rest_keep(t);                                                                      \
		expect(nvj_format(&region, &o) == (error));                                        \
		expect(rest_untouched(t));                                                         \
		region = t->region;                                                                \
	} while (0)
	REFUSED(o.partitions = 65, NVJ_EINVAL);
	REFUSED(o.commits = 8, NVJ_EINVAL);
	REFUSED(o.commits = 48, NVJ_EINVAL);
	REFUSED(o.commits = 131072, NVJ_EINVAL);
	REFUSED(memset(o.uuid, 0, 16), NVJ_EINVAL);
	REFUSED(region.base = NULL, NVJ_EINVAL);
	REFUSED(region.base = t->memory + 8, NVJ_EINVAL);
	REFUSED(region.persistence = NULL, NVJ_EINVAL);
	REFUSED(o.partitions = 64, NVJ_ENOSPC);
	REFUSED(o.commits = 65536, NVJ_ENOSPC);
	REFUSED(region.size_bytes = 16384 + 65535, NVJ_ENOSPC);
	REFUSED(region.size_bytes = 4096, NVJ_ENOSPC);
	REFUSED(region.size_bytes = 0, NVJ_ENOSPC);
	o = rest_options;
	region.size_bytes = 16384 + 65536;
	expect(nvj_format(&region, &o) == 0);
	rest_free(t);
}

static void no_journal(void)
{
	struct rest *t = rest_new(1 << 20);
	struct nvj_region region = t->region;
	struct nvj_disk_super s;

	expect(nvj_read_super(&region, &s) == NVJ_ENODATA);
	memset(t->memory, 0, 1 << 20);
	expect(nvj_read_super(&region, &s) == NVJ_ENODATA);
	expect(nvj_format(&region, &rest_options) == 0);
	region.size_bytes = NVJ_COMMITS_OFFSET - 1;
	expect(nvj_read_super(&region, &s) == NVJ_ENODATA);
	region.size_bytes = (1 << 20) - 4096;
	expect(nvj_read_super(&region, &s) == NVJ_EUCLEAN);
	region.base = t->memory + 1;
	expect(nvj_read_super(&region, &s) == NVJ_EINVAL);
	rest_free(t);
}

/* Puts one superblock, its CRC made right, into these copies. */
static void put(struct rest *t, struct nvj_disk_super s, unsigned copies)
{
	s.crc = nvj_super_crc(&s);
	for (unsigned copy = 0; copy < 2; copy++)
		if (copies >> copy & 1)
			*copy_of(t, copy) = s;
}

static void impossible_layouts(void)
{
	struct rest *t = rest_formatted(3, 1024);
	struct nvj_disk_super good = *copy_of(t, 0), s;
	struct nvj_report r;

	/* In one copy it must not be passed over for the other either: it was written so. */
#define IMPOSSIBLE(change, error)                                                                  \
	for (unsigned copies = 1; copies <= 3; copies++) {                                         \
		put(t, good, 3);                                                                   \
		expect(nvj_check(&t->region, &t->platform, &r) == 0);                              \
		s = good;                                                                          \
		change;                                                                            \
		put(t, s, copies);                                                                 \
		expect(nvj_recover(&t->region, &t->platform, &r) == (error));                      \
		expect((error) == NVJ_EFORMAT ||                                                   \
		       (r.findings == 1 && r.finding[0].kind == NVJ_FOUND_LAYOUT));                \
	}
	IMPOSSIBLE(s.size_bytes += 64, NVJ_EUCLEAN);
	IMPOSSIBLE(s.size_bytes -= 64, NVJ_EUCLEAN);
	IMPOSSIBLE(s.size_bytes = 0, NVJ_EUCLEAN);
	IMPOSSIBLE(s.size_bytes = ~UINT64_C(0), NVJ_EUCLEAN);
	IMPOSSIBLE(s.partition_offset += 64, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partition_offset = 0, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partition_offset += 1, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partition_offset = ~UINT64_C(63), NVJ_EUCLEAN);
	/* The end of all comes out right, but below the commit ring. */
	IMPOSSIBLE((s.partition_offset = 12288, s.size_bytes = 12288 + 3 * 65536), NVJ_EUCLEAN);
	IMPOSSIBLE(s.ring_lines += 1, NVJ_EUCLEAN);
	IMPOSSIBLE(s.ring_lines = 0, NVJ_EUCLEAN);
	IMPOSSIBLE(s.ring_lines = ~UINT64_C(0), NVJ_EUCLEAN);
	/* 3 * lines * 64 is the right number again, modulo 2^64. */
	IMPOSSIBLE(s.ring_lines += UINT64_C(1) << 58, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partitions = 0, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partitions = 2, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partitions = 65, NVJ_EUCLEAN);
	IMPOSSIBLE(s.partitions = ~0u, NVJ_EUCLEAN);
	IMPOSSIBLE(s.commits = 0, NVJ_EUCLEAN);
	IMPOSSIBLE(s.commits = 17, NVJ_EUCLEAN);
	IMPOSSIBLE(s.commits = 128, NVJ_EUCLEAN);
	IMPOSSIBLE(s.commits = 1u << 31, NVJ_EUCLEAN);
	IMPOSSIBLE(s.commit_lines = 1, NVJ_EUCLEAN);
	IMPOSSIBLE(s.commit_lines = ~0u, NVJ_EUCLEAN);
	IMPOSSIBLE(s.block_bytes = 512, NVJ_EUCLEAN);
	IMPOSSIBLE(s.seed ^= 1, NVJ_EUCLEAN);
	IMPOSSIBLE(s.uuid[0] ^= 1, NVJ_EUCLEAN);
	IMPOSSIBLE(s.version = 3, NVJ_EFORMAT);
	IMPOSSIBLE(s.version = 0, NVJ_EFORMAT);
	IMPOSSIBLE(s.placement = 0, NVJ_EUCLEAN);
	IMPOSSIBLE(s.placement = 3, NVJ_EUCLEAN);
	/* Two that are possible, but not the same. */
	put(t, good, 3);
	s = good;
	s.formatted_unix++;
	put(t, s, 2);
	expect(nvj_check(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.finding[0].kind == NVJ_FOUND_LAYOUT);
	rest_free(t);
}

static void both_damaged(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_disk_super s;
	struct nvj_report r;

	copy_of(t, 0)->uuid[1] ^= 1;
	expect(nvj_read_super(&t->region, &s) == 0);
	copy_of(t, 1)->magic ^= 1;
	expect(nvj_read_super(&t->region, &s) == NVJ_EUCLEAN);
	expect(nvj_recover(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.findings == 1 && r.finding[0].kind == NVJ_FOUND_SUPERS && !r.clean);
	rest_free(t);
}

/* Formatted anew over a journal in use: nothing of that is seen again. */
static void formatted_again(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_format_options o = rest_options;
	struct nvj_report r;
	uint64_t low = 0;

	for (uint64_t tid = 1; tid < 12; tid++) {
		rest_log(t, tid, NVJ_UPDATE, tid, 3, 0, 0x77);
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
	}
	o.uuid[0]++;
	expect(nvj_format(&t->region, &o) == 0);
	expect(nvj_check(&t->region, &t->platform, &r) == 0 && r.clean && r.committed_tid == 0);
	/* Even a commit that reaches over the old records does not bring them back. */
	expect(nvj_read_super(&t->region, &(struct nvj_disk_super){0}) == 0);
	t->g.seed = nvj_seed_of(o.uuid);
	rest_seal(t, 1, NVJ_COMMIT, &low, NULL);
	expect(nvj_check(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.finding[0].kind == NVJ_FOUND_RECORD && r.finding[0].position == 0);
	rest_free(t);
}

/*
 * The seed of this UUID is 5, and so the CRC of transaction 5 is 0, as is an empty
 * slot: it is empty, not damaged. Such a seed is as likely as 1 in 2^32 for each slot.
 */
static void seed_is_a_transaction(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_format_options o = rest_options;
	struct nvj_report r;

	memset(o.uuid, 0x4e, 12);
	memcpy(o.uuid + 12, (const uint8_t[4]){0xb7, 0x09, 0x51, 0x26}, 4);
	expect(nvj_seed_of(o.uuid) == 5);
	expect(nvj_format(&t->region, &o) == 0);
	expect(nvj_check(&t->region, &t->platform, &r) == 0 && r.clean && r.committed_tid == 0);
	t->g.seed = 5;
	for (uint64_t tid = 1; tid <= 5; tid++)
		rest_seal(t, tid, NVJ_COMMIT, NULL, NULL);
	expect(nvj_check(&t->region, &t->platform, &r) == 0 && r.committed_tid == 5);
	rest_free(t);
}

/* Every error has its own text. */
static void texts(void)
{
	const int errors[] = {NVJ_EIO,     NVJ_EAGAIN,  NVJ_ENOMEM, NVJ_EBUSY,
			      NVJ_EINVAL,  NVJ_ENOSPC,  NVJ_EROFS,  NVJ_ENODATA,
			      NVJ_EUCLEAN, NVJ_EMEDIUM, NVJ_EFORMAT};
	const unsigned count = sizeof(errors) / sizeof(errors[0]);

	for (unsigned i = 0; i < count; i++) {
		const char *text = nvj_strerror(errors[i]);

		expect(text && *text && text[strlen(text) - 1] != '.');
		expect(strcmp(text, nvj_strerror(-9999)) != 0);
		for (unsigned j = 0; j < i; j++)
			expect(strcmp(text, nvj_strerror(errors[j])) != 0);
	}
}

int main(void)
{
	made_and_read();
	usual_commits();
	usual_partitions();
	refused_options();
	no_journal();
	impossible_layouts();
	both_damaged();
	formatted_again();
	seed_is_a_transaction();
	texts();
	return 0;
}
