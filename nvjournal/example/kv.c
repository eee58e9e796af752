/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key-value store that survives kill -9 and power failures, in one file of
 * fixed size: a hash table whose buckets are the journal's blocks.
 *
 *	kv FILE put KEY VALUE		kv FILE get KEY
 *	kv FILE del KEY			kv FILE list
 *	kv FILE load FIRST COUNT	puts COUNT keys, and prints each when it is safe
 *
 * FILE holds the blocks, FILE.journal the journal: put it into persistent
 * memory, and a put costs a copy and two fences.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvjournal_user.h"

#define BUCKETS 1024u /* bucket n is block n + 1; block 0 counts the keys */
#define ENTRIES 32u   /* of a bucket */
#define KEY_BYTES 32u
#define VALUE_BYTES 96u

struct entry {
	char key[KEY_BYTES]; /* "": free */
	char value[VALUE_BYTES];
};

union block {
	uint8_t bytes[NVJ_BLOCK_BYTES];
	struct entry entry[ENTRIES];
	uint64_t keys;
};
_Static_assert(sizeof(union block) == NVJ_BLOCK_BYTES, "a bucket is a block");

static struct nvju *store;

static int fail(const char *what, int error)
{
	fprintf(stderr, "kv: cannot %s: %s\n", what, nvj_strerror(error));
	return 1;
}

/* What was logged last counts; what the journal does not know is at home. */
static int read_block(uint64_t number, union block *block)
{
	if (nvj_peek(store->journal, number, block))
		return 0;
	return nvju_disk_read(store->disk, number, block);
}

static uint64_t bucket_of(const char *key)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	while (*key)
		hash = (hash ^ (uint8_t)*key++) * UINT64_C(0x100000001b3);
	return 1 + hash % BUCKETS;
}

/* The key's entry; else, if free_too, a free one; else NULL. */
static struct entry *find(union block *block, const char *key, bool free_too)
{
	struct entry *found = NULL;

	for (struct entry *e = block->entry; e < block->entry + ENTRIES; e++) {
		if (!strcmp(e->key, key))
			return e;
		if (free_too && !found && !e->key[0])
			found = e;
	}
	return found;
}

/*
 * Puts, or deletes with value NULL. The bucket and the count of keys are two
 * blocks: they change in one handle, so that both survive, or neither. Returns
 * the transaction; 0: there was nothing to do; or an error.
 */
static int64_t change(const char *key, const char *value)
{
	uint64_t number = bucket_of(key);
	struct nvj_handle handle;
	union block bucket, head;
	struct entry *entry;
	int error;

	/* Before anything is changed: the right to log two blocks. */
	error = nvj_start(store->journal, &handle, 2 * NVJ_BLOCK_CREDITS);
	if (error)
		return error;
	error = read_block(number, &bucket);
	if (!error)
		error = read_block(0, &head);
	/* The journal looks at the blocks as they are, to find later what changed. */
	if (!error)
		error = nvj_access(&handle, number, &bucket);
	if (!error)
		error = nvj_access(&handle, 0, &head);
	entry = error ? NULL : find(&bucket, key, value != NULL);
	if (!entry) {
		nvj_stop(&handle); /* nothing was logged: nothing happens */
		return error ? error : value ? NVJ_ENOSPC : 0;
	}
	head.keys += value ? !entry->key[0] : -1;
	memset(entry, 0, sizeof(*entry));
	if (value) {
		snprintf(entry->key, KEY_BYTES, "%s", key);
		snprintf(entry->value, VALUE_BYTES, "%s", value);
	}
	/* A put is 2 to 3 lines of 64 bytes here, and its header; not 4096 bytes. */
	error = nvj_log(&handle, number, &bucket, NVJ_COMPARE);
	if (error >= 0)
		error = nvj_log(&handle, 0, &head, NVJ_COMPARE);
	if (error < 0)
		nvj_abort(store->journal, error); /* half a change must never be committed */
	int64_t tid = (int64_t)nvj_stop(&handle);

	return error < 0 ? error : tid;
}

/* As fsync: after it the change is safe. */
static int change_and_commit(const char *key, const char *value)
{
	int64_t tid = change(key, value);

	return tid > 0 ? nvj_commit(store->journal, (uint64_t)tid) : (int)tid;
}

static int get(const char *key)
{
	union block bucket;
	int error = read_block(bucket_of(key), &bucket);
	struct entry *entry = error ? NULL : find(&bucket, key, false);

	if (error)
		return fail("get", error);
	if (!entry)
		return 1;
	puts(entry->value);
	return 0;
}

/* Shows all keys, and checks that the count in block 0 fits them. */
static int list(void)
{
	union block block;
	uint64_t keys = 0;

	for (uint64_t number = 1; number <= BUCKETS; number++) {
		int error = read_block(number, &block);

		if (error)
			return fail("list", error);
		for (struct entry *e = block.entry; e < block.entry + ENTRIES; e++)
			if (e->key[0])
				keys += printf("%s %s\n", e->key, e->value) > 0;
	}
	if (read_block(0, &block) || block.keys != keys) {
		fprintf(stderr, "kv: %llu keys, and the count says %llu\n",
			(unsigned long long)keys, (unsigned long long)block.keys);
		return 1;
	}
	return 0;
}

static int load(unsigned long first, unsigned long count)
{
	char key[KEY_BYTES], value[VALUE_BYTES];

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned long n = first; n < first + count; n++) {
		snprintf(key, sizeof(key), "key%lu", n % 5000);
		snprintf(value, sizeof(value), "%lu", n);
		int error = change_and_commit(key, value);

		if (error)
			return fail("put", error);
		printf("%s %s\n", key, value); /* acknowledged */
	}
	return 0;
}

static int run(int count, char **words)
{
	int error = NVJ_EINVAL;

	if (count == 2 && !strcmp(words[0], "get"))
		return get(words[1]);
	if (count == 1 && !strcmp(words[0], "list"))
		return list();
	if (count == 3 && !strcmp(words[0], "load"))
		return load(strtoul(words[1], NULL, 10), strtoul(words[2], NULL, 10));
	if (count == 3 && !strcmp(words[0], "put") && words[1][0] && strlen(words[1]) < KEY_BYTES &&
	    strlen(words[2]) < VALUE_BYTES)
		error = change_and_commit(words[1], words[2]);
	if (count == 2 && !strcmp(words[0], "del"))
		error = change_and_commit(words[1], NULL);
	return error ? fail(words[0], error) : 0;
}

int main(int count, char **words)
{
	/* A journal of 4 MiB with 4 rings is made when there is none yet. */
	const struct nvju_options options = {
		.region_size_bytes = 4 << 20,
		.create_partitions = 4,
		.disk_flags = NVJU_DISK_CREATE,
	};
	char journal[4096];
	int result;

	if (count < 3) {
		fprintf(stderr,
			"kv FILE put KEY VALUE | get KEY | del KEY | list | load FIRST COUNT\n");
		return 2;
	}
	snprintf(journal, sizeof(journal), "%s.journal", words[1]);
	/* Recovers, if the last one was killed. */
	if (nvju_open(&store, journal, words[1], &options)) {
		fprintf(stderr, "kv: %s\n", nvju_error());
		return 2;
	}
	result = run(count - 2, words + 2);
	if (nvju_close(store)) {
		fprintf(stderr, "kv: %s\n", nvju_error());
		return 1;
	}
	return result;
}
