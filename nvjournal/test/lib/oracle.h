/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recovered disk must hold: the blocks as they were after all handles of
 * transactions up to the last one that recovery found, and nothing of later
 * ones. Knows what each handle logged, in the order of the caller's locks, and
 * which blocks the caller revoked and wrote itself.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct oracle_entry {
	uint64_t tid; /* 0: its handle has not stopped */
	uint32_t handle;
	uint32_t block;
	bool revoke;
	int result; /* of nvj_log or nvj_revoke */
	uint64_t mask;
	uint32_t stamp[64]; /* of the lines in mask */
};

struct oracle_direct {
	uint32_t block;
	uint32_t entries; /* there were as it began */
	bool done;        /* at the point that is looked at */
	uint8_t is[4096];
};

struct oracle_state {
	uint64_t tid;
	uint8_t *bytes;    /* of all blocks */
	bool *any;         /* of each block: revoked */
	uint32_t *entries; /* of each block: its last entry's number + 1 */
};

struct oracle {
	uint32_t blocks;
	uint8_t *initial;
	struct oracle_entry *entry;
	uint32_t entries, entry_room;
	struct oracle_direct *direct;
	uint32_t directs, direct_room;
	uint32_t directs_started; /* at the point that is looked at */
	struct oracle_state *state;
	uint32_t states, state_room;
};

/* A line's 64 bytes; stamp 0 is zeros. */
void oracle_fill(void *line, uint32_t stamp);

void oracle_begin(struct oracle *o, const uint8_t *disk, uint32_t blocks);
void oracle_end(struct oracle *o);

/* The handle has logged these lines of the block, and nvj_log returned result. */
void oracle_log(struct oracle *o, uint32_t handle, uint32_t block, uint64_t mask,
		const uint32_t stamp[64], int result);
void oracle_revoke(struct oracle *o, uint32_t handle, uint32_t block, int result);
/* The handle has stopped, in transaction tid. */
void oracle_stop(struct oracle *o, uint32_t handle, uint64_t tid);
/*
 * The block is the caller's, who begins to write it himself, or has had it brought
 * home: that is what it is then. Its number.
 */
uint32_t oracle_direct(struct oracle *o, uint32_t block, const void *is);

/*
 * Is the disk as it must be if transactions up to tid count? If not, false, and
 * text says why.
 */
bool oracle_check(struct oracle *o, uint64_t tid, const uint8_t *disk, char *text, size_t bytes);

#endif
