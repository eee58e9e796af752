/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring that goes around: positions and laps, low and high, the tail, room, the
 * anchor; crashes, recovery in steps, and the runs after it.
 *
 * Two threads run handles of one record of one line each, each in a line of
 * the block of its own; so records of two transactions interleave in the ring,
 * and none needs a merge. A leader closes, awaits flags and seals. A checkpoint
 * carries home and moves the tail. Here the disk is never at fault (home.pml),
 * nor are slots (slots.pml): a seal is a word for each transaction.
 *
 * A line that is written and not fenced may survive a crash or not. After it,
 * recovery walks from the tail's low to the last seal's high: each line must be
 * whole and at its own position, and the block must become what it was when that
 * transaction committed. The next run begins after an anchor, in the same ring.
 * With LOST, one record that was fenced is lost by the memory: the place has what
 * it had a lap ago. Recovery must report it or not need it.
 */
#ifndef LINES
#define LINES 4 /* of the ring */
#endif
#ifndef HANDLES
#define HANDLES 5 /* in all runs */
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#define TIDS 10

typedef Line {
	byte position, tid, line, value
};
Line cache[LINES], memory[LINES];
#ifdef LOST
Line before[LINES]; /* a lap ago */
#endif

typedef Slot {
	bool stored, sealed, anchor;
	byte low, high
};
Slot slot[TIDS];
byte tail_cache, tail_memory;
byte home[2];

/* In DRAM. */
bool up;
byte head, running, committed, freed_low, under_way;
byte flag[LINES]; /* position + 1 of the record here that is persistent */
typedef Open {
	byte handles[2]
};
byte open_of[2];

/* Outside: what each transaction made of a line; 0: nothing. */
typedef Made {
	byte value[2]
};
Made made[TIDS];
byte handles;
byte crashes;
bool lost;
bool over;
byte committed_before; /* when it crashed */

inline fence_line(p)
{
	memory[(p) % LINES].position = cache[(p) % LINES].position;
	memory[(p) % LINES].tid = cache[(p) % LINES].tid;
	memory[(p) % LINES].line = cache[(p) % LINES].line;
	memory[(p) % LINES].value = cache[(p) % LINES].value
}

proctype Handle(byte me)
{
	byte tid, position, mine;

end_idle:
	{
	/* nvj_start: room is taken, and the handle counted, in one: see room.pml, commit.pml. */
	atomic {
		up && handles < HANDLES && head + under_way + 1 <= freed_low + LINES ->
		handles++;
		under_way++;
		tid = running;
		open_of[tid % 2]++
	};
	/* nvj_log */
	atomic {
		position = head;
		head++;
		under_way--;
		made[tid].value[me] = handles
	};
	atomic {
#ifdef LOST
		before[position % LINES].position = cache[position % LINES].position;
		before[position % LINES].tid = cache[position % LINES].tid;
		before[position % LINES].line = cache[position % LINES].line;
		before[position % LINES].value = cache[position % LINES].value;
#endif
		cache[position % LINES].position = position + 1;
		cache[position % LINES].tid = tid;
		cache[position % LINES].line = me;
		cache[position % LINES].value = made[tid].value[me]
#ifdef BROKEN_FLAG_BEFORE_FENCE
		;
		flag[position % LINES] = position + 1
#endif
	};
	/* nvj_stop */
	atomic {
		fence_line(position);
		flag[position % LINES] = position + 1
	};
	atomic {
		open_of[tid % 2]--;
		tid = 0;
		position = 0;
		goto end_idle
	}
	} unless {
		atomic {
			over || mine != crashes ->
			mine = crashes;
			tid = 0; position = 0;
			if
			:: over
			:: else -> goto end_idle
			fi
		}
	}
}

#define DIRTY (running < TIDS && (made[running].value[0] != 0 || made[running].value[1] != 0))

proctype Leader()
{
	byte tid, high, at, mine;

end_idle:
	{
	atomic {
		up && DIRTY && running < TIDS - 2 ->
		tid = running;
		slot[tid].low = head
	};
	running = tid + 1;
	open_of[tid % 2] == 0;
	high = head;
	atomic {
		at = slot[tid].low; /* last_check: what is before was followed by the last commit */
#ifndef BROKEN_NO_LAST_CHECK
		do
		:: at < high ->
			flag[at % LINES] == at + 1;
			at++
		:: else -> break
		od;
#endif
		at = 0;
		slot[tid].high = high
	};
	slot[tid].stored = true;
	slot[tid].sealed = true;
	atomic {
		committed = tid;
		tid = 0;
		high = 0;
		goto end_idle
	}
	} unless {
		atomic {
			over || mine != crashes ->
			mine = crashes;
			tid = 0; high = 0; at = 0;
			if
			:: over
			:: else -> goto end_idle
			fi
		}
	}
}

/* The block as transaction t committed it. */
inline as_of(t, which, result)
{
	k = 1;
	result = 0;
	do
	:: k <= t ->
		if
		:: made[k].value[which] != 0 -> result = made[k].value[which]
		:: else
		fi;
		k++
	:: else -> break
	od;
	k = 0
}

inline carry_home(t)
{
	d_step {
		as_of(t, 0, home[0]);
		as_of(t, 1, home[1])
	}
}

proctype Checkpoint()
{
	byte target, k, mine;

end_idle:
	{
	atomic {
		up && committed > tail_cache ->
		target = committed;
		carry_home(target)
	};
#ifdef BROKEN_TAIL_FENCE
	/* Broken: the room is used before the tail is persistent. */
	atomic { tail_cache = target; freed_low = slot[target].low };
	tail_memory = target;
#else
	tail_cache = target;
	tail_memory = target;
#endif
	atomic {
#ifdef BROKEN_FREE_TO_HIGH
		/* Broken: all before high is free, though the next one's records are there. */
		freed_low = slot[target].high;
#else
		freed_low = slot[target].low;
#endif
		target = 0;
		goto end_idle
	}
	} unless {
		atomic {
			over || mine != crashes ->
			mine = crashes;
			target = 0;
			if
			:: over
			:: else -> goto end_idle
			fi
		}
	}
}

inline survive_line(p)
{
	if
	:: cache[p].position != memory[p].position || cache[p].tid != memory[p].tid || cache[p].value != memory[p].value ->
		if
		:: fence_line(p)
		:: cache[p].position = memory[p].position;
			cache[p].tid = memory[p].tid;
			cache[p].line = memory[p].line;
			cache[p].value = memory[p].value
		fi
	:: else
	fi
}

inline crash()
{
	crashes++;
	up = false;
	i = 0;
	do
	:: i < LINES ->
		survive_line(i);
		flag[i] = 0;
		i++
	:: else -> break
	od;
	i = 0;
	do
	:: i < TIDS ->
		if
		:: slot[i].stored && !slot[i].sealed ->
			if
			:: slot[i].sealed = true
			:: slot[i].stored = false
			fi
		:: else
		fi;
		i++
	:: else -> break
	od;
	if
	:: tail_memory = tail_cache
	:: tail_cache = tail_memory
	fi;
	i = 0;
	head = 0;
	under_way = 0;
	open_of[0] = 0;
	open_of[1] = 0;
	freed_low = 0
}

/* The walk, and what it makes of the block. */
inline replay()
{
	d_step {
		last = tail_cache;
		do
		:: last + 1 < TIDS && slot[last + 1].sealed -> last++
		:: else -> break
		od;
		damaged = false;
		value[0] = home[0];
		value[1] = home[1];
		i = slot[tail_cache].low;
		do
		:: i < slot[last].high ->
#ifdef BROKEN_NO_POSITION
			damaged = damaged || cache[i % LINES].position == 0;
#else
			damaged = damaged || cache[i % LINES].position != i + 1;
#endif
			if
			:: cache[i % LINES].tid > tail_cache && cache[i % LINES].tid <= last && !slot[cache[i % LINES].tid].anchor ->
				value[cache[i % LINES].line] = cache[i % LINES].value
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	}
}

proctype Power()
{
	byte i, k, last, expected;
	byte value[2];
	bool damaged;

	/* Formatted: transaction 0 is an anchor at 0. */
	do
	:: atomic {
		up && crashes < CRASHES ->
		committed_before = committed;
		crash();
#ifdef LOST
		/* The memory loses one record that recovery will walk over, and that was fenced. */
		if
		:: !lost ->
			i = 0;
			do
			:: i < LINES - 1 -> i++
			:: break
			od;
			if
			:: memory[i].position > slot[committed_before].high -> skip
			:: else ->
				lost = true;
				cache[i].position = before[i].position;
				cache[i].tid = before[i].tid;
				cache[i].line = before[i].line;
				cache[i].value = before[i].value;
				fence_line(i)
			fi;
			i = 0
		:: true
		fi;
#endif
recover:
		replay();
		if
		:: damaged ->
			assert(lost);
			over = true;
			goto finished
		:: else
		fi;
		assert(last >= committed_before);
		/* What did not commit never will: its numbers are free again. */
		d_step {
			i = last + 1;
			do
			:: i < TIDS ->
				made[i].value[0] = 0;
				made[i].value[1] = 0;
				i++
			:: else -> break
			od;
			i = 0
		};
		as_of(last, 0, expected);
		assert(value[0] == expected);
		as_of(last, 1, expected);
		assert(value[1] == expected);
		committed_before = last;
		expected = 0;
		/* Home, line by line; each may be where it was, or not. */
		if
		:: home[0] = value[0]
		:: crashes < CRASHES -> crash(); goto recover
		fi;
		if
		:: home[1] = value[1]
		:: crashes < CRASHES -> crash(); goto recover
		fi;
		tail_cache = last;
		if
		:: tail_memory = last
		:: crashes < CRASHES -> crash(); goto recover
		fi;
#ifdef BROKEN_NO_ANCHOR
		/* Broken: the next run begins with the number after the last. */
		running = last + 1;
		committed = last;
#else
		if
		:: last + 1 >= TIDS -> over = true; goto finished
		:: else
		fi;
		slot[last + 1].low = slot[last].high;
		slot[last + 1].high = slot[last].high;
		slot[last + 1].anchor = true;
		slot[last + 1].stored = true;
		if
		:: slot[last + 1].sealed = true
		:: crashes < CRASHES -> crash(); goto recover
		fi;
		running = last + 2;
		committed = last + 1;
#endif
		head = slot[last].high;
		freed_low = slot[last].low;
		value[0] = 0;
		value[1] = 0;
		last = 0;
		up = true
	}
	:: break
	od;
finished:
	skip
}

init
{
	atomic {
		slot[0].stored = true;
		slot[0].sealed = true;
		slot[0].anchor = true;
		running = 1;
		up = true;
		run Handle(0);
		run Handle(1);
		run Leader();
		run Checkpoint();
		run Power()
	}
}
