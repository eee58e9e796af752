/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate, and reservations: who may begin a handle in which transaction while
 * a group of two closes. (The engine's groups are of three: the last one is what
 * matters.) No records, no crash: commit.pml has those.
 *
 * WRITERS threads begin a handle each, and may leave a reservation; CONVERTERS
 * begin what was reserved. Any handle that is open may want the block of the
 * newest transaction that has one: then the groups merge. The leader commits until
 * all is committed; his before_commit waits for the reservations that there are.
 *
 * In every state: no handle of a transaction is open that is being sealed, and
 * no open one wants to be merged with a transaction beyond the group. Deadlocks
 * are SPIN's invalid end states.
 */
#ifndef WRITERS
#define WRITERS 3
#endif
#define CONVERTERS 2
#define TIDS 8

byte running = 1, committed = 0;
byte sealing; /* the last of the group, from before_commit on; 0: none */
bool gate;
byte gate_tid, joinable;
byte count[4];       /* at tid mod 4: started less ended; commit.pml has them apart */
byte open[TIDS + 1]; /* what the counts are there to say */
byte merge_to;
byte newest; /* that has the block */
byte reserved, pending; /* reservations not started; not ended */
byte writers_left = WRITERS;

#define OPEN(t) (count[(t) % 4] != 0)

/* Counts itself into the running transaction. */
inline count_in()
{
	do
	:: tid = running;
		count[tid % 4]++;
		if
		:: atomic { running == tid -> open[tid]++; break }
		:: atomic { running != tid -> count[tid % 4]-- }
		fi
	od
}

inline want_block()
{
	atomic {
		assert(tid > committed && (sealing == 0 || tid > sealing));
		if
		:: newest > tid -> merge_to = (newest > merge_to -> newest : merge_to)
		:: else -> newest = tid
		fi
	}
}

inline end_handle()
{
	atomic {
		open[tid]--;
		count[tid % 4]--
	}
}

proctype Writer()
{
	byte tid;

	do
	:: count_in();
		if
		:: !gate -> break
		:: gate -> end_handle(); !gate
		fi
	od;
	if
	:: want_block()
	:: skip
	fi;
	if
	:: atomic { reserved++; pending++ }
	:: skip
	fi;
	if
	:: true -> pending == 0 /* as who wants a page that is being written */
	:: skip
	fi;
	if
	:: want_block()
	:: skip
	fi;
	end_handle();
	writers_left--
}

proctype Converter()
{
	byte tid;

end:
	do
	:: atomic { reserved > 0 -> reserved-- };
		do
		:: count_in();
#ifdef BROKEN_PASSES
			break;
#endif
			if
			:: !gate || tid <= gate_tid -> break
			:: else -> end_handle()
			fi;
#ifndef BROKEN_WAITS
			tid = joinable;
			if
			:: tid == 0
			:: tid != 0 ->
				count[tid % 4]++;
				if
				:: atomic { joinable == tid -> open[tid]++; break }
				:: atomic { joinable != tid -> count[tid % 4]-- }
				fi
			fi;
			/* Sleeps until something changes: no busy waiting in the model. */
			(!gate || joinable != 0)
#else
			!gate
#endif
		od;
		want_block();
		end_handle();
		pending--
	od
}

inline drain()
{
	!OPEN(last)
}

proctype Leader()
{
	byte first, last, wait_for;

	do
	:: running < TIDS - 2 && newest == running ->
		first = running;
		last = first;
		running = last + 1;
		drain();
		if
		:: merge_to > last ->
			last++;
			gate_tid = last;
			joinable = last;
			gate = true;
			running = last + 1;
			do
			:: drain();
				joinable = 0;
#ifdef BROKEN_NO_SECOND_LOOK
				break;
#endif
				if
				:: !OPEN(last) -> break
				:: else -> joinable = last
				fi
			od;
			assert(merge_to <= last);
#ifndef BROKEN_GATE_LATE
			gate = false
#endif
		:: else
		fi;
		/* before_commit: a handle that is open now is of a later one. */
		atomic {
			sealing = last;
			assert(open[first] == 0 && open[last] == 0)
		};
		pending == 0;
		assert(open[first] == 0 && open[last] == 0);
		atomic {
			committed = last;
			sealing = 0
		};
		gate = false
	:: running >= TIDS - 2 -> break
	:: writers_left == 0 && pending == 0 && newest != running -> break
	od;
	gate = false
}

init
{
	byte n;

	atomic {
		n = 0;
		do
		:: n < WRITERS -> run Writer(); n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < CONVERTERS -> run Converter(); n++
		:: else -> break
		od;
		run Leader()
	}
}
