/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers of the journal, as threads of schedule.h in a world of world.h: they
 * change, create and revoke blocks under locks of their own, commit, checkpoint,
 * use revoked blocks for data, and tell an oracle what they did.
 */
#ifndef TEST_WORKLOAD_H
#define TEST_WORKLOAD_H

#include "oracle.h"
#include "schedule.h"
#include "world.h"

/* The shape of a workload. "Once in" n operations; 0: never. */
struct workload {
	const char *name;
	uint32_t partitions, ring_lines, commits;
	uint32_t blocks, actors, handles; /* handles: of each actor */
	uint32_t blocks_per_handle;       /* at most */
	uint32_t lines_per_block;         /* changed, at most */
	uint32_t commit_once_in, checkpoint_once_in, revoke_once_in, data_once_in;
	uint32_t home_once_in;  /* a block is brought home, and revoked */
	uint32_t twice_once_in; /* a block is logged twice in a handle */
	uint32_t later_once_in; /* nvj_log_later; at most later_lines wait */
	uint32_t later_lines;
	/*
	 * A handle leaves a reservation, for one of two threads that do nothing
	 * else; and before_commit waits for those that there are.
	 */
	uint32_t reserve_once_in;
	/* What is reserved for, the write of file data, takes so long at most. */
	uint64_t reserve_ns;
	bool early_unlock;      /* locks go before the handle stops: merges */
	bool halves;            /* two actors log distinct lines of a block without a lock */
	bool workers;           /* threads for checkpoint and commit */
	bool disk_fails;        /* some write fails, and the journal aborts */
	bool close;             /* ends with nvj_close, now and then */
	bool plain_file;        /* the region is one: plain_file.h */
	bool formats;           /* begins with nvj_format, over something else */
	uint32_t recover_with;  /* threads of nvj_open's recovery; 0: partitions in turn */
	uint32_t stall_once_in; /* points: a thread loses its processor; schedule_stalls */
	unsigned checkpoint_percent;
	uint32_t generations; /* crash, recover, go on: so many times */
};

#define WORKLOAD_CONVERTERS 2u

/* What the journal of a workload that formats has in uuid[0]; what was there before has not. */
#define WORKLOAD_UUID 7u

extern const struct workload workloads[];
extern const unsigned workload_count;

/* Bytes of a region for it. */
size_t workload_region_bytes(const struct workload *w);

struct workload_block {
	uint32_t locked; /* a word to wait at */
	enum { BLOCK_LIVE, BLOCK_FREED, BLOCK_DATA } state;
	uint64_t freed_tid;
	uint32_t logs;       /* how often it was logged */
	uint64_t logged_tid; /* the newest transaction that has logged it */
	bool started;        /* cache holds it */
};

struct workload_run {
	const struct workload *workload;
	struct world world;
	struct oracle oracle;
	struct schedule *schedule;
	struct nvj *journal;
	struct random random;
	struct nvj_statistics statistics; /* before it was closed */
	uint64_t points;
	uint8_t *cache; /* the caller's memory: all blocks */
	struct workload_block *block;
	/* Of each actor, a word to wait at: is there a reservation that has not ended? */
	struct {
		struct nvj_reserved reserved;
		uint32_t pending;
		bool started; /* somebody has taken it */
	} reservation[SCHEDULE_MAX_THREADS];
	uint32_t work; /* a word: how often there was a new one, or an actor that ended */
	uint32_t actors_ended;
	uint32_t stamps, handle_ids;
	uint64_t open_tid[SCHEDULE_MAX_THREADS]; /* of each actor's open handle; 0: none */
	char wrong[240];                         /* what the run itself found wrong, or empty */
};

/*
 * Runs it on a region and disk in the state given, which it changes. False:
 * run->wrong says why; also then workload_end must be called.
 */
bool workload_start(struct workload_run *run, const struct workload *w, uint8_t *region,
		    uint8_t *disk, uint64_t seed);
void workload_end(struct workload_run *run);

#endif
