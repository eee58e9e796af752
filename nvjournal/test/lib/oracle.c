/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096u

void oracle_fill(void *line, uint32_t stamp)
{
	uint64_t word[8] = {0};

	for (unsigned i = 0; i < 8 && stamp != 0; i++)
		word[i] = random_mix((uint64_t)stamp * 8 + i);
	memcpy(line, word, 64);
}

void oracle_begin(struct oracle *o, const uint8_t *disk, uint32_t blocks)
{
	memset(o, 0, sizeof(*o));
	o->blocks = blocks;
	o->initial = malloc((size_t)blocks * BLOCK_BYTES);
	if (o->initial == NULL)
		abort();
	memcpy(o->initial, disk, (size_t)blocks * BLOCK_BYTES);
}

void oracle_end(struct oracle *o)
{
	for (uint32_t i = 0; i < o->states; i++) {
		free(o->state[i].bytes);
		free(o->state[i].any);
		free(o->state[i].entries);
	}
	free(o->state);
	free(o->initial);
	free(o->entry);
	free(o->direct);
	memset(o, 0, sizeof(*o));
}

static void *grow(void *array, uint32_t count, uint32_t *room, size_t bytes)
{
	if (count < *room)
		return array;
	*room = *room ? 2 * *room : 64;
	array = realloc(array, *room * bytes);
	if (array == NULL)
		abort();
	return array;
}

static struct oracle_entry *append(struct oracle *o, uint32_t handle, uint32_t block)
{
	struct oracle_entry *e;

	o->entry = grow(o->entry, o->entries, &o->entry_room, sizeof(*o->entry));
	e = &o->entry[o->entries++];
	memset(e, 0, sizeof(*e));
	e->handle = handle;
	e->block = block;
	return e;
}

void oracle_log(struct oracle *o, uint32_t handle, uint32_t block, uint64_t mask,
		const uint32_t stamp[64], int result)
{
	struct oracle_entry *e = append(o, handle, block);

	e->mask = mask;
	e->result = result;
	memcpy(e->stamp, stamp, sizeof(e->stamp));
}

void oracle_revoke(struct oracle *o, uint32_t handle, uint32_t block, int result)
{
	struct oracle_entry *e = append(o, handle, block);

	e->revoke = true;
	e->result = result;
}

void oracle_stop(struct oracle *o, uint32_t handle, uint64_t tid)
{
	for (uint32_t i = o->entries; i-- > 0;)
		if (o->entry[i].handle == handle)
			o->entry[i].tid = tid;
}

uint32_t oracle_direct(struct oracle *o, uint32_t block, const void *is)
{
	struct oracle_direct *direct;

	o->direct = grow(o->direct, o->directs, &o->direct_room, sizeof(*o->direct));
	direct = &o->direct[o->directs];
	direct->block = block;
	direct->entries = o->entries;
	direct->done = false;
	memcpy(direct->is, is, BLOCK_BYTES);
	return o->directs++;
}

/* All blocks after the transactions up to tid; made once. */
static struct oracle_state *state_at(struct oracle *o, uint64_t tid)
{
	struct oracle_state *s;

	for (uint32_t i = 0; i < o->states; i++)
		if (o->state[i].tid == tid)
			return &o->state[i];
	o->state = grow(o->state, o->states, &o->state_room, sizeof(*o->state));
	s = &o->state[o->states++];
	s->tid = tid;
	s->bytes = malloc((size_t)o->blocks * BLOCK_BYTES);
	s->any = calloc(o->blocks, sizeof(*s->any));
	s->entries = calloc(o->blocks, sizeof(*s->entries));
	if (s->bytes == NULL || s->any == NULL || s->entries == NULL)
		abort();
	memcpy(s->bytes, o->initial, (size_t)o->blocks * BLOCK_BYTES);
	for (uint32_t i = 0; i < o->entries; i++) {
		const struct oracle_entry *e = &o->entry[i];
		uint8_t *block = s->bytes + (size_t)e->block * BLOCK_BYTES;

		if (e->tid == 0 || e->tid > tid)
			continue;
		s->entries[e->block] = i + 1;
		s->any[e->block] = e->revoke;
		for (unsigned l = 0; l < 64; l++)
			if (e->mask >> l & 1)
				oracle_fill(block + 64 * l, e->stamp[l]);
	}
	return s;
}

/* The caller's own write of the block that counts at this point, or NULL. */
static const struct oracle_direct *direct_of(const struct oracle *o, uint32_t block,
					     uint32_t entries)
{
	for (uint32_t i = o->directs_started; i-- > 0;)
		if (o->direct[i].block == block)
			return entries > o->direct[i].entries ? NULL : &o->direct[i];
	return NULL;
}

bool oracle_check(struct oracle *o, uint64_t tid, const uint8_t *disk, char *text, size_t bytes)
{
	struct oracle_state *s = state_at(o, tid);

	for (uint32_t b = 0; b < o->blocks; b++) {
		const uint8_t *is = disk + (size_t)b * BLOCK_BYTES;
		const uint8_t *must = s->bytes + (size_t)b * BLOCK_BYTES;
		const struct oracle_direct *direct = direct_of(o, b, s->entries[b]);

		if (direct != NULL) {
			if (!direct->done)
				continue;
			must = direct->is;
		} else if (s->any[b]) {
			continue;
		}
		if (memcmp(is, must, BLOCK_BYTES) == 0)
			continue;
		for (unsigned l = 0; l < 64; l++) {
			if (memcmp(is + 64 * l, must + 64 * l, 64) == 0)
				continue;
			snprintf(text, bytes,
				 "block %u, line %u is not as after transaction %llu%s", b, l,
				 (unsigned long long)tid,
				 direct != NULL ? " (the caller's own data)" : "");
			return false;
		}
	}
	return true;
}
