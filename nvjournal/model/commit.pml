/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles, closing, merging and commit, with a crash at any point.
 *
 * HANDLES threads run one handle each, on a CPU each. A handle changes a line of
 * each of two blocks: it sets its own bit there, as one does in a bitmap, so a
 * line's content says whose changes it holds. Access, change and log are three
 * steps: others may change and log the same block between them, as callers do
 * who hold their lock for the change alone. A handle keeps its records, which
 * have sequence numbers, and places them in a ring when it stops; or before, as
 * if it had no room for them. One leader closes and commits until
 * all is committed. The rings are endless here (ring.pml has their ends), slots
 * of the commit ring are words (slots.pml has their parts).
 *
 * In every state, a crash is played out aside: for each seal that may or may not
 * have survived, and each commit that the checkpoint may have carried home, what
 * would recovery make of it? Checked then: no record below the last commit's
 * high is unfenced (a crash could leave a hole there, and recovery would call it
 * damage); every handle's changes are there in both blocks or in none; all that
 * was acknowledged are; who changed what he had seen of another is not there
 * without him; and nobody of an older transaction is missing where one of a
 * newer is there. Deadlocks are SPIN's invalid end states.
 */
#ifndef P
#define P 1 /* rings */
#endif
#ifndef HANDLES
#define HANDLES 3
#endif
#define BLOCKS 2
#define RECORDS 6 /* of a ring, at most */
#ifndef TIDS
#define TIDS 4 /* transactions are 1..TIDS - 1 */
#endif

#ifdef BY_CPU
#define RING(h, block) ((h) % P)
#else
#define RING(h, block) ((block) % P)
#endif

typedef Record {
	byte tid;
	byte block; /* 0 or 1 */
	byte mask;
	byte sequence; /* of the block's records */
	byte line0, line1;
	bool persistent, flag
};
Record record[P * RECORDS];
byte head[P];

typedef Vector {
	byte at[P]
};
Vector low[TIDS + 1];
Vector high[TIDS];
/* 0: not sealed. */
#define COMMIT 1
#define MERGED 2
byte sealed[TIDS];
byte sealed_unfenced; /* the transaction whose seal is stored and not fenced */

byte running = 1, committed = 0;
bool merge[TIDS + 1]; /* this one must commit with the next */
bool gate;

/* Open handles, for each CPU and parity. */
typedef Count {
	byte started[2];
	byte ended[2]
};
Count count[HANDLES];

/* The caller's memory: two lines of two blocks. */
byte content[BLOCKS * 2];
/* The block's entry: the image last logged, its last sequence number, who asked for it last. */
byte image[BLOCKS * 2];
byte sequence[BLOCKS];
byte asked[BLOCKS];

/* What the outside knows of handles. */
byte tid_of[HANDLES];
bool stopped[HANDLES];
byte saw[HANDLES];

/* What a handle changes: blocks and lines. */
#define BLOCK(h, n) (((h) + (n)) % 2)
#define LINE(h, n) (((h) == 2 || ((h) == 1 && (n) == 0)) -> 1 : 0)

#define NONE 255
#define CLOSING (running > committed + 1)

inline say_if_newer(block)
{
	if
	:: asked[block] > tid ->
#ifndef BROKEN_NO_MERGE
		merge[tid] = true
#else
		skip
#endif
	:: else
	fi
}

inline fence_records()
{
	d_step {
		if
		:: mine[0] != NONE -> record[mine[0]].persistent = true
		:: else
		fi;
		if
		:: mine[1] != NONE -> record[mine[1]].persistent = true
		:: else
		fi
	}
}

inline flag_records()
{
	d_step {
		if
		:: mine[0] != NONE -> record[mine[0]].flag = true
		:: else
		fi;
		if
		:: mine[1] != NONE -> record[mine[1]].flag = true
		:: else
		fi
	}
}

/* The record of the n-th block, if it is kept: reserves its lines, and writes it. */
inline place(n)
{
	if
	:: mask[n] != 0 && mine[n] == NONE ->
		r = RING(h, BLOCK(h, n));
		mine[n] = r * RECORDS + head[r];
		head[r]++;
		record[mine[n]].tid = tid;
		record[mine[n]].block = BLOCK(h, n);
		record[mine[n]].mask = mask[n];
		record[mine[n]].sequence = number[n];
		record[mine[n]].line0 = copy0[n];
		record[mine[n]].line1 = copy1[n];
#ifdef BROKEN_FLAG_BEFORE_FENCE
		record[mine[n]].flag = true;
#endif
		r = 0
	:: else
	fi
}

/* One block of a handle: nvj_access, the change, nvj_log. Each atomic is a step. */
inline change_block(n)
{
	/* nvj_access, under the block's lock */
	atomic {
		b = BLOCK(h, n);
		say_if_newer(b);
		if
		:: asked[b] < tid -> asked[b] = tid
		:: else
		fi
	};
	/* The caller changes it, under his own lock. */
	d_step {
		saw[h] = saw[h] | content[b * 2 + LINE(h, n)];
		content[b * 2 + LINE(h, n)] = content[b * 2 + LINE(h, n)] | (1 << h)
	};
	/* nvj_log, under the block's lock: what differs goes into the image, and has a number */
	atomic {
#if !defined(BROKEN_MERGE_AT_ACCESS_ONLY) && !defined(BROKEN_MERGE_IF_DIFFERENT)
		say_if_newer(b);
#endif
		mask[n] = (content[b * 2] != image[b * 2] -> 1 : 0) + (content[b * 2 + 1] != image[b * 2 + 1] -> 2 : 0);
#ifdef BROKEN_MERGE_IF_DIFFERENT
		/* Broken: nothing had changed, so it returns before it looks. */
		if
		:: mask[n] -> say_if_newer(b)
		:: else
		fi;
#endif
		image[b * 2] = content[b * 2];
		image[b * 2 + 1] = content[b * 2 + 1];
		copy0[n] = image[b * 2];
		copy1[n] = image[b * 2 + 1]
#ifndef BROKEN_LOG_UNLOCKED
		;
		sequence[b]++;
		number[n] = sequence[b]
#endif
	};
#ifdef BROKEN_LOG_UNLOCKED
	/* Broken: the number has another order than the images. */
	d_step {
		sequence[b]++;
		number[n] = sequence[b]
	};
#endif
	if
	:: mask[n] != 0 ->
		/* No room to keep it: all that are kept are placed. */
		d_step {
			place(0);
			place(1)
		};
		if
		:: CLOSING ->
			/* Fenced and flagged now, so that nobody waits for long. */
			fence_records();
			flag_records()
		:: else
		fi
	:: true
	fi
}

proctype Handle(byte h)
{
	byte tid, b, r;
	byte mask[2], copy0[2], copy1[2], number[2];
	byte mine[2] = NONE; /* the places of its records */

	/* nvj_start */
again:
	atomic {
		!gate ->
		tid = running
	};
#ifdef BROKEN_NO_RECHECK
	count[h].started[tid % 2]++;
#else
	count[h].started[tid % 2]++;
	if
	:: atomic {
		running != tid ->
		count[h].ended[tid % 2]++;
		goto again
	}
	:: running == tid
	fi;
#endif
	tid_of[h] = tid;
	change_block(0);
	change_block(1);
	/* nvj_stop: one reservation of each ring, one fence, the flags, count down */
	d_step {
		place(0);
		place(1)
	};
	fence_records();
	flag_records();
	d_step {
		count[h].ended[tid % 2]++;
		stopped[h] = true;
		tid = 0;
		b = 0;
		mine[0] = 0;
		mine[1] = 0;
		mask[0] = 0;
		mask[1] = 0;
		copy0[0] = 0;
		copy0[1] = 0;
		copy1[0] = 0;
		copy1[1] = 0;
		number[0] = 0;
		number[1] = 0
	}
}

inline close()
{
#ifndef BROKEN_LOW_LATE
	low[last].at[0] = head[0];
#if P == 2
	low[last].at[1] = head[1];
#endif
	running = last + 1;
#else
	running = last + 1;
	low[last].at[0] = head[0];
#if P == 2
	low[last].at[1] = head[1];
#endif
#endif
}

#if HANDLES == 2
#define STARTED(p) (count[0].started[p] + count[1].started[p])
#define ENDED(p) (count[0].ended[p] + count[1].ended[p])
#else
#define STARTED(p) (count[0].started[p] + count[1].started[p] + count[2].started[p])
#define ENDED(p) (count[0].ended[p] + count[1].ended[p] + count[2].ended[p])
#endif
#define QUIET STARTED(last % 2) == ENDED(last % 2)
#define NEXT_QUIET STARTED((last + 1) % 2) == ENDED((last + 1) % 2)

#ifndef COUNTS
/* All counters at once. */
inline wait_for_handles()
{
	QUIET
}

inline look_at_next()
{
	whole = (NEXT_QUIET)
}
#else
/* Reads the counters one by one into sum: first who ended, then who began. */
inline read_counters(parity)
{
	sum = 0;
	c = 0;
	do
	:: c < HANDLES ->
#ifdef BROKEN_STARTED_FIRST
		atomic { sum = sum + count[c].started[parity]; c++ }
#else
		atomic { sum = sum + count[c].ended[parity]; c++ }
#endif
	:: c >= HANDLES && c < 2 * HANDLES ->
#ifdef BROKEN_STARTED_FIRST
		atomic { sum = sum - count[c - HANDLES].ended[parity]; c++ }
#else
		atomic { sum = sum - count[c - HANDLES].started[parity]; c++ }
#endif
	:: c == 2 * HANDLES -> break
	od;
	c = 0
}

inline look_at_next()
{
	read_counters((last + 1) % 2);
	atomic {
		whole = (sum == 0);
		sum = 0
	}
}

/*
 * CPU by CPU: the transaction is closed, so one that has no open handle stays so.
 * First who ended, then who began.
 */
inline wait_for_handles()
{
#ifdef BROKEN_STARTED_FIRST
	do
	:: read_counters(last % 2);
		if
		:: sum == 0 -> break
		:: else ->
			atomic {
				sum = 0;
				QUIET
			}
		fi
	od
#else
	c = 0;
	do
	:: c < HANDLES ->
		sum = count[c].ended[last % 2];
		sum = sum - count[c].started[last % 2];
		if
		:: atomic { sum == 0 -> c++ }
		:: else ->
			/* Sleeps until somebody ends: no busy waiting in the model. */
			atomic {
				sum = 0;
				count[c].started[last % 2] == count[c].ended[last % 2]
			}
		fi
	:: else -> break
	od;
	atomic {
		sum = 0;
		c = 0
	}
#endif
}
#endif
#define ALL_STOPPED (stopped[0] && stopped[1] && (HANDLES == 2 || stopped[HANDLES - 1]))

/* Somebody began a handle in the running transaction: an empty one is not closed. */
#define NOT_EMPTY (tid_of[0] == running || tid_of[1] == running || tid_of[HANDLES - 1] == running)

proctype Leader()
{
	byte first, last, c;
	bool whole;
#ifdef COUNTS
	short sum;
#endif

	do
	:: atomic {
		running < TIDS && NOT_EMPTY ->
		first = running;
		last = running
	};
		close();
		wait_for_handles();
		do
		:: atomic {
			merge[last] && last < TIDS - 1 ->
			last++;
			gate = (last - first == 2)
		};
			close();
			wait_for_handles()
		:: atomic {
			merge[last] && last == TIDS - 1 ->
			/* The bound: this one is never committed. */
			gate = false;
			goto quit
		}
		:: atomic {
			!merge[last] ->
			gate = false; /* before the file data; gate.pml */
#ifndef BROKEN_LOOK_BEFORE_HIGH
			high[last].at[0] = head[0];
#endif
			break
		}
		od;
#ifdef BROKEN_LOOK_BEFORE_HIGH
		look_at_next();
		high[last].at[0] = head[0];
#endif
#if P == 2
		high[last].at[1] = head[1];
#endif
#ifndef BROKEN_NO_LAST_CHECK
#ifdef BROKEN_LOOK_AT_OWN
		whole = true;
#elif !defined(BROKEN_LOOK_BEFORE_HIGH)
		/* No handle is open, not of the next one either: all that is before high is flagged. */
		look_at_next();
#endif
		/* Else from last_check to high: waits at each flag. */
		atomic {
			c = (whole -> high[last].at[0] : 0);
			do
			:: c < high[last].at[0] ->
				record[c].flag;
				c++
			:: else -> break
			od;
#if P == 2
			c = (whole -> high[last].at[1] : 0);
			do
			:: c < high[last].at[1] ->
				record[RECORDS + c].flag;
				c++
			:: else -> break
			od;
#endif
			whole = false;
			c = first
		};
#else
		c = first;
#endif
		do
		:: atomic {
			c <= last ->
			sealed[c] = (c < last -> MERGED : COMMIT);
			sealed_unfenced = c
		};
			atomic {
				sealed_unfenced = 0;
				c++
			}
		:: atomic {
			c > last ->
			committed = last;
			first = 0;
			last = 0;
			c = 0;
			break
		}
		od
	:: ALL_STOPPED && !NOT_EMPTY -> break
	:: running == TIDS && committed == running - 1 -> break
	od;
quit:
	skip
}

/* What recovery would read now. Changes nothing. */
proctype Crash()
{
	byte t, l, r, i, home, survives;
	byte line[4], last[4]; /* last: the number of the line's newest record so far */
	byte there, half;

end:
	do
	:: d_step {
		survives = 0;
		do
		:: survives < 2 ->
			/* The last transaction that counts. */
			l = 0;
			t = 1;
			do
			:: t < TIDS && sealed[t] != 0 && (survives == 1 || t != sealed_unfenced) ->
				if
				:: sealed[t] == COMMIT -> l = t
				:: else
				fi;
				t++
			:: else -> break
			od;
			assert(l >= committed);
			home = 0;
			do
			:: home <= committed ->
				if
				:: home == 0 || sealed[home] == COMMIT ->
					line[0] = 0;
					line[1] = 0;
					line[2] = 0;
					line[3] = 0;
					last[0] = 0;
					last[1] = 0;
					last[2] = 0;
					last[3] = 0;
					r = 0;
					do
					:: r < P ->
						/* Carried home by the checkpoint, then the walk. */
						i = 0;
						do
						:: i < (l == 0 -> 0 : high[l].at[r]) ->
							assert(record[r * RECORDS + i].persistent);
							if
							:: record[r * RECORDS + i].tid <= home || (record[r * RECORDS + i].tid <= l && i >= (home == 0 -> 0 : low[home].at[r])) ->
								t = record[r * RECORDS + i].block;
#ifdef BROKEN_RING_ORDER
								/* Broken: the later record in a ring counts. */
								last[t * 2] = 0;
								last[t * 2 + 1] = 0;
#endif
								if
								:: (record[r * RECORDS + i].mask & 1) && record[r * RECORDS + i].sequence > last[t * 2] ->
									line[t * 2] = record[r * RECORDS + i].line0;
									last[t * 2] = record[r * RECORDS + i].sequence
								:: else
								fi;
								if
								:: (record[r * RECORDS + i].mask & 2) && record[r * RECORDS + i].sequence > last[t * 2 + 1] ->
									line[t * 2 + 1] = record[r * RECORDS + i].line1;
									last[t * 2 + 1] = record[r * RECORDS + i].sequence
								:: else
								fi
							:: else
							fi;
							i++
						:: else -> break
						od;
						r++
					:: else -> break
					od;
					there = 0;
					i = 0;
					do
					:: i < HANDLES ->
						half = 0;
						if
						:: line[BLOCK(i, 0) * 2 + LINE(i, 0)] & (1 << i) -> half++
						:: else
						fi;
						if
						:: line[BLOCK(i, 1) * 2 + LINE(i, 1)] & (1 << i) -> half++
						:: else
						fi;
						assert(half != 1); /* all of a handle or none */
						if
						:: half == 2 -> there = there | (1 << i)
						:: else -> assert(!(stopped[i] && tid_of[i] <= committed)) /* never lost */
						fi;
						assert(half == 0 || tid_of[i] <= l);
						i++
					:: else -> break
					od;
					i = 0;
					do
					:: i < HANDLES ->
						assert(!(there & (1 << i)) || (saw[i] & there) == saw[i]);
						i++
					:: else -> break
					od
				:: else
				fi;
				home++
			:: else -> break
			od;
			survives++
		:: else -> break
		od;
		t = 0;
		l = 0;
		r = 0;
		i = 0;
		home = 0;
		survives = 0;
		there = 0;
		half = 0;
		line[0] = 0;
		line[1] = 0;
		line[2] = 0;
		line[3] = 0;
		last[0] = 0;
		last[1] = 0;
		last[2] = 0;
		last[3] = 0
	}
	od
}

init
{
	atomic {
		run Handle(0);
		run Handle(1);
#if HANDLES == 3
		run Handle(2);
#endif
		run Leader();
		run Crash()
	}
}
