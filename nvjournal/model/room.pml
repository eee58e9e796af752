/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room: credits in pools, the sign TIGHT, and who makes room. No crash here.
 *
 * THREADS threads run handle after handle, without end, of 1 or K lines that go to
 * the one ring as one record. Each takes credits from its processor's pool, or under
 * a lock from all, counts itself in, and looks at the sign; if it is raised he
 * gives all back and waits. Who logs beyond the limit raises it before his log
 * returns. Somebody closes a transaction, awaits its handles, and lets the ring
 * go on from that transaction's low; then he looks whether the sign may go: it
 * goes by a compare-and-swap that fails if it was raised since he looked.
 *
 * Proved: no line is written over that is needed; nobody waits for ever.
 */
#ifndef THREADS
#define THREADS 3
#endif
#define CPUS 2
#ifndef K
#define K 2 /* credits, all together; a handle may want all */
#endif
#ifndef LINES
#define LINES 4
#endif
#ifdef BROKEN_LIMIT
#define LIMIT (LINES - K + 1)
#else
#define LIMIT (LINES - K)
#endif

byte pool[CPUS], common = K;
bool collecting;
short head, limit = LIMIT; /* counted from the tail's low */
bool tight;
byte raises; /* moves on with each raise; here, 8 during one look would be taken for none */
byte running;
byte open_of[2];

/* TIGHT goes, if the ring is within its limit. */
inline review(seen)
{
	do
	:: atomic {
		tight ->
		seen = raises
	};
		if
		:: head > limit -> break
		:: else
		fi;
#ifdef BROKEN_CLEAR_BLINDLY
		tight = false;
		break
#else
		if
		:: atomic { tight && raises == seen -> tight = false; break }
		:: !tight || raises != seen
		fi
#endif
	:: !tight -> break
	od;
	seen = 0
}

proctype Thread(byte cpu)
{
	byte size, tid, have, seen;

	do
	:: true ->
		if
		:: size = 1
		:: size = K
		fi;
start:
#ifdef BROKEN_TIGHT_BEFORE_CREDITS
		!tight;
#endif
		/* nvj_credits_take */
		if
		:: atomic { pool[cpu] >= size -> pool[cpu] = pool[cpu] - size }
		:: atomic { pool[cpu] < size && !collecting -> collecting = true };
			do
			:: true ->
				have = 0;
				atomic { have = pool[cpu]; pool[cpu] = 0 };
				atomic {
					if
					:: have + common <= size -> have = have + common; common = 0
					:: else -> common = common - (size - have); have = size
					fi
				};
				atomic {
					if
					:: have < size -> have = have + pool[1 - cpu]; pool[1 - cpu] = 0
					:: else
					fi
				};
				if
				:: have >= size ->
					pool[cpu] = pool[cpu] + have - size;
					break
				:: else ->
#ifdef BROKEN_KEEP_WHILE_WAITING
					/* Broken: keeps what it has and lets others collect meanwhile. */
					collecting = false;
					atomic { common + pool[0] + pool[1] + have >= size && !collecting -> collecting = true; common = common + have }
#else
					common = common + have;
					common + pool[0] + pool[1] >= size
#endif
				fi
			od;
			atomic { have = 0; collecting = false }
		fi;
		/* Counted in; commit.pml shows how that is done without a lock. */
		atomic {
			tid = running;
			open_of[tid]++
		};
#ifndef BROKEN_TIGHT_BEFORE_CREDITS
		if
		:: tight ->
			open_of[tid]--;
			pool[cpu] = pool[cpu] + size;
			!tight;
			goto start
		:: else
		fi;
#endif
		/* nvj_log */
		atomic {
			head = head + size;
			/* What is needed begins at low. */
			assert(head <= LINES)
		};
#ifdef BROKEN_RAISE_LATE
		/* Broken: the credits are given back before the sign is raised. */
		pool[cpu] = pool[cpu] + size;
#endif
		if
		:: head > limit ->
			atomic { tight = true; raises = (raises + 1) % 8 };
			/* The limit may have moved between. */
			if
			:: head <= limit -> review(seen)
			:: else
			fi
		:: else
		fi;
		/* nvj_stop */
#ifndef BROKEN_RAISE_LATE
		pool[cpu] = pool[cpu] + size;
#endif
		atomic {
			open_of[tid]--;
			size = 0;
			tid = 0
		}
	od
}

/* Commits and checkpoints, when the sign is raised or not. */
proctype Maker()
{
	byte seen;
	short next;

	do
	:: atomic {
		head > 0 ->
		next = head
	};
		running = 1 - running;
		/* Handles of the transaction that has closed. */
		open_of[1 - running] == 0;
		/* Sealed, carried home; the tail is persistent. */
		atomic {
			head = head - next;
			limit = limit - next;
			next = 0
		};
		limit = LIMIT;
		review(seen)
	od
}

init
{
	atomic {
		run Thread(0);
		run Thread(1);
#if THREADS == 3
		run Thread(0);
#endif
		run Maker()
	}
}
