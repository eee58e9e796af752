/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key-value store in one file of fixed size. It survives kill -9 and power
 * failures. It is a hash table whose buckets are the blocks of the journal.
 *
 * 	kv FILE put KEY VALUE | del KEY | get KEY | list
 * 	kv FILE				such commands from standard input, one per line
 *
 * FILE has the blocks, and FILE.journal is the journal. In persistent memory, a
 * put costs a copy and two fences. When put prints its result, the data are
 * safe. With --allow-volatile before FILE the journal may be a plain file, for
 * development.
 */
#include <stdio.h>
#include <string.h>

#include "nvjournal_user.h"

#define BUCKETS 1024u /* bucket n is block n + 1; block 0 counts the keys */

struct entry {
	char key[32]; /* "": free */
	char value[96];
};

union block {
	struct entry entry[32];
	uint64_t keys;
};
_Static_assert(sizeof(union block) == NVJ_BLOCK_BYTES, "a bucket is a block");

static struct nvju *store;

/*
 * The last logged version is valid. A block that the journal does not know is
 * at home.
 */
static int read_block(uint64_t n, union block *block)
{
	return nvj_peek(store->journal, n, block) ? 0 : nvju_disk_read(store->disk, n, block);
}

static uint64_t bucket_of(const char *key)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	while (*key)
		hash = (hash ^ (uint8_t)*key++) * UINT64_C(0x100000001b3);
	return 1 + hash % BUCKETS;
}

/* The entry of the key; otherwise a free entry; otherwise NULL. */
static struct entry *find(union block *bucket, const char *key)
{
	struct entry *free = NULL;

	for (struct entry *e = bucket->entry; e < bucket->entry + 32; e++)
		if (!strcmp(e->key, key))
			return e;
		else if (!e->key[0])
			free = e;
	return free;
}

/*
 * Puts a value, or deletes with value "". Bucket and count change in one
 * handle: both or neither.
 */
static int change(const char *key, const char *value)
{
	uint64_t number = bucket_of(key), tid;
	union block bucket, head;
	struct nvj_handle handle;
	struct entry *entry;
	int error = nvj_start(store->journal, &handle, 2 * NVJ_BLOCK_CREDITS);

	if (error)
		return error;
	/*
	 * The journal sees the blocks before the change, to find the changed
	 * lines later.
	 */
	if (!(error = read_block(number, &bucket)) && !(error = read_block(0, &head)) &&
	    !(error = nvj_access(&handle, number, &bucket)) &&
	    !(error = nvj_access(&handle, 0, &head)) && (entry = find(&bucket, key))) {
		head.keys += (value[0] != 0) - (entry->key[0] != 0);
		strncpy(entry->key, value[0] ? key : "", sizeof(entry->key));
		strncpy(entry->value, value, sizeof(entry->value));
		/*
		 * A put logs 2 to 3 lines of 64 bytes and a header, not 4096
		 * bytes.
		 */
		error = nvj_log(&handle, number, &bucket, NVJ_COMPARE);
		if (error >= 0)
			error = nvj_log(&handle, 0, &head, NVJ_COMPARE);
		if (error < 0)
			nvj_abort(store->journal, error); /* never a part of it */
	} else if (!error && value[0]) {
		error = NVJ_ENOSPC; /* the bucket is full */
	}
	tid = nvj_stop(&handle);
	return error < 0 ? error : nvj_commit(store->journal, tid); /* as fsync */
}

/* Shows all keys. NVJ_EUCLEAN: the count in block 0 is wrong. */
static int list(void)
{
	union block block;
	uint64_t keys = 0;

	for (uint64_t number = 1; number <= BUCKETS; number++) {
		if (read_block(number, &block))
			return NVJ_EIO;
		for (struct entry *e = block.entry; e < block.entry + 32; e++)
			if (e->key[0])
				keys += printf("%s %s\n", e->key, e->value) > 0;
	}
	return read_block(0, &block) ? NVJ_EIO : block.keys == keys ? 0 : NVJ_EUCLEAN;
}

/*
 * Runs a command of at most three words, then NULL. Returns 0; 1: there is no
 * such key; or an error.
 */
static int run(char **word)
{
	const char *key = word[1] ? word[1] : "", *value = word[1] && word[2] ? word[2] : "";
	struct entry *entry;
	union block block;
	int error = NVJ_EINVAL;

	if (!key[0] || strlen(key) >= sizeof(entry->key) || strlen(value) >= sizeof(entry->value))
		error = strcmp(word[0], "list") ? NVJ_EINVAL : list();
	else if (!strcmp(word[0], value[0] ? "put" : "del"))
		error = change(key, value);
	else if (!strcmp(word[0], "get") && !(error = read_block(bucket_of(key), &block)))
		return !(entry = find(&block, key)) || !entry->key[0] || puts(entry->value) < 0;
	if (error)
		fprintf(stderr, "kv: cannot %s: %s\n", word[0], nvj_strerror(error));
	else if (value[0])
		printf("%s %s\n", key, value); /* safe */
	return error;
}

int main(int count, char **words)
{
	/* For development: the journal in a plain file. */
	bool volatile_too = count > 1 && !strcmp(words[1], "--allow-volatile");
	/*
	 * Makes a journal of 4 rings if there is none. Recovers it if the
	 * program was killed.
	 */
	const struct nvju_options options = {.region_size_bytes = 4 << 20,
					     .create_partitions = 4,
					     .region_flags = volatile_too ? NVJ_ALLOW_VOLATILE : 0,
					     .disk_flags = NVJU_DISK_CREATE};
	char text[4096], *word[4] = {NULL};
	int result = 0;

	count -= volatile_too;
	words += volatile_too;
	snprintf(text, sizeof(text), "%s.journal", count > 1 ? words[1] : "");
	if (count < 2 || nvju_open(&store, text, words[1], &options))
		return fprintf(stderr, "kv [--allow-volatile] FILE [COMMAND...]\n%s\n",
			       nvju_error()),
		       2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count > 2)
		result = run(words + 2);
	while (count == 2 && fgets(text, sizeof(text), stdin)) {
		word[0] = strtok(text, " \n");
		word[1] = strtok(NULL, " \n");
		word[2] = strtok(NULL, " \n");
		result |= word[0] ? run(word) : 0;
	}
	return nvju_close(store) || result;
}
