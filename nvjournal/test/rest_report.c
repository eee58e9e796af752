/* SPDX-License-Identifier: Apache-2.0 */
/* What the report says when check or recovery ends with an error. */
#include "rest.h"

/* No record was revoked: the report of damage says so. */
static void damage_is_no_revoke(void)
{
	struct rest *t = rest_formatted(2, 1024);
	struct nvj_report r;

	rest_log(t, 1, NVJ_UPDATE, 2, 1, 0, 0x11);
	rest_log(t, 1, NVJ_UPDATE, 3, 1, 0, 0x11);
	rest_log(t, 1, NVJ_UPDATE, 4, 1, 0, 0x11);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	/* The record of block 3, in its ring alone. */
	((uint8_t *)nvj_line_at(&t->g, 1, 0))[30] ^= 1;
	expect(nvj_check(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.findings == 1 && r.revoked == 0);
	expect(nvj_recover(&t->region, &t->platform, &r) == NVJ_EUCLEAN);
	expect(r.findings == 1 && r.revoked == 0 && r.blocks == 0);
	((uint8_t *)nvj_line_at(&t->g, 1, 0))[30] ^= 1;
	t->writes_until_error = 1;
	expect(nvj_recover(&t->region, &t->platform, &r) == NVJ_EIO);
	expect(r.revoked == 0);
	rest_free(t);
}

/* A record is revoked; only a recovery without an error says so. */
static void an_error_hides_the_revoked(void)
{
	struct rest *t = rest_formatted(1, 1024);
	struct nvj_report r;

	rest_log(t, 1, NVJ_UPDATE, 2, 1, 0, 0x11);
	rest_log(t, 1, NVJ_UPDATE, 3, 1, 0, 0x11);
	rest_log(t, 1, NVJ_REVOKE, 3, 0, 0, 0);
	rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
	expect(nvj_check(&t->region, &t->platform, &r) == 0 && r.revoked == 1);
	t->flushes_until_error = 1;
	expect(nvj_recover(&t->region, &t->platform, &r) == NVJ_EIO);
	expect(r.blocks == 1 && r.revoked == 0);
	t->flushes_until_error = 0;
	expect(nvj_recover(&t->region, &t->platform, &r) == 0 && r.revoked == 1);
	rest_free(t);
}

static uint64_t region_reads_left;

static int read_until(void *to, const void *from, size_t bytes)
{
	if (!region_reads_left)
		return NVJ_EIO;
	region_reads_left--;
	memcpy(to, from, bytes);
	return 0;
}

/*
 * Memory fails after so many reads. What was written is in the report, and once the
 * memory works, recovery writes all.
 */
static void memory_fails_during_replay(void)
{
	bool some = false;
	int error;

	for (uint64_t reads = 0; reads < 2000; reads++) {
		struct rest *t = rest_formatted(2, 1024);
		struct nvj_report r;
		unsigned written;

		rest_log(t, 1, NVJ_UPDATE, 2, 1, 0, 0x11);
		rest_log(t, 1, NVJ_UPDATE, 3, 1, 0, 0x12);
		rest_seal(t, 1, NVJ_COMMIT, NULL, NULL);
		region_reads_left = reads;
		t->region.read = read_until;
		error = nvj_recover(&t->region, &t->platform, &r);
		written = rest_line_is(t, 2, 0, 0x11) + rest_line_is(t, 3, 0, 0x12);
		expect(error == 0 || error == NVJ_EUCLEAN);
		if (error) {
			expect(r.blocks == written && r.findings > 0 && r.revoked == 0);
			some |= written == 1;
		}
		t->region.read = NULL;
		expect(nvj_recover(&t->region, &t->platform, &r) == 0);
		expect(rest_line_is(t, 2, 0, 0x11) && rest_line_is(t, 3, 0, 0x12));
		rest_free(t);
		if (!error)
			break;
	}
	expect(!error && some);
}

int main(void)
{
	damage_is_no_revoke();
	an_error_hides_the_revoked();
	memory_fails_during_replay();
	return 0;
}
