/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit ring: slots, seals, merged transactions, the tail's two copies and
 * the anchor, with a crash at any point of run, checkpoint and recovery.
 *
 * Each word of the region has a cached and a persistent value. A crash keeps,
 * of each word that is not fenced, the one or the other: no order within a line
 * is relied on. A slot is its seal (hi: of which transaction, lo: which content)
 * and two words of content, of which the first stands for the rest of the seal's
 * line, the second for all further lines. A CRC that fits is equality of lo and
 * both words. Handles, rings and blocks are not here: see commit.pml and on.
 *
 * Proved: a crash never makes a slot that counts as damaged; what was
 * acknowledged counts for ever; what recovery once passed over never counts
 * again; transactions that merged count all or none. With FLIP, a word of a
 * committed slot is damaged at a crash, and recovery must say so.
 */
#ifndef CRASHES
#define CRASHES 3
#endif
#ifndef MAXT
#define MAXT 9 /* transactions are 0..MAXT */
#endif
#ifndef CHAIN
#define CHAIN 3 /* most transactions that merge into one commit */
#endif
#define C 4 /* slots */
#define NONE 251
#define BAD 250

#define COMMIT 0
#define MERGED 1
#define ANCHOR 2
#define CONTENT(t, kind) ((t) * 12 + (kind) * 4 + opening + 1)
#define KIND(content) ((((content) - 1) / 4) % 3)

typedef Slot {
	byte hi, lo, w0, w1
};
Slot cache[C], memory[C];
byte tail_cache[2], tail_memory[2];

bool crashed;
byte opening; /* openings so far */
byte crashes;

/* What the engine knows in DRAM. */
byte committed, freed; /* slots up to freed - 1 may be used again */
bool open;

/* What the outside knows. */
#define UNKNOWN 0
#define ALIVE 1
#define DEAD 2
byte fate[MAXT + 2];
byte chain_end[MAXT + 2];
bool flipped, damaged;

#define S(t) cache[(t) % C]
#define PREVIOUS(t) ((t) >= C -> (t) - C : NONE)
#define SEALED(t) (S(t).hi == (t) && S(t).lo == S(t).w0 && S(t).lo == S(t).w1)
#ifdef BROKEN_NO_NOT_YET
/* Broken: whatever is not sealed was never committed. */
#define NOT_YET(t) (!SEALED(t))
#else
#define NOT_YET(t) (S(t).hi == PREVIOUS(t))
#endif

inline fence_slot(t)
{
	d_step {
		memory[(t) % C].hi = S(t).hi;
		memory[(t) % C].lo = S(t).lo;
		memory[(t) % C].w0 = S(t).w0;
		memory[(t) % C].w1 = S(t).w1;
	}
}

inline fence_tail()
{
	d_step {
		tail_memory[0] = tail_cache[0];
		tail_memory[1] = tail_cache[1];
	}
}

inline write_body(t, kind)
{
	S(t).w0 = CONTENT(t, kind);
	S(t).w1 = CONTENT(t, kind);
}

inline seal(t, kind)
{
	d_step {
		S(t).hi = t;
		S(t).lo = CONTENT(t, kind);
	}
}

/* A crash: of each word the cached or the persistent value survives. */
inline survive(cached, persistent)
{
	if
	:: cached != persistent -> persistent = cached
	:: cached = persistent
	fi
}

proctype Power()
{
	byte i;

	do
	:: atomic {
		!crashed && !damaged && crashes < CRASHES ->
		crashes++;
		i = 0;
		do
		:: i < C ->
			/* The seal is one word of 8 bytes. */
			if
			:: cache[i].hi != memory[i].hi || cache[i].lo != memory[i].lo ->
				memory[i].hi = cache[i].hi;
				memory[i].lo = cache[i].lo
			:: cache[i].hi = memory[i].hi;
				cache[i].lo = memory[i].lo
			fi;
			survive(cache[i].w0, memory[i].w0);
			survive(cache[i].w1, memory[i].w1);
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < 2 ->
			if
			:: tail_memory[i] = tail_cache[i]
			:: tail_cache[i] = tail_memory[i]
			fi;
			i++
		:: else -> break
		od;
#ifdef FLIP
		/* A bit of the newest committed slot flips. */
		if
		:: !flipped && open && SEALED(committed) && fate[committed] == ALIVE && committed > tail_cache[0] && committed > tail_cache[1] ->
			flipped = true;
			i = committed % C;
			if
			:: cache[i].hi = BAD
			:: cache[i].lo = BAD
			:: cache[i].w0 = BAD
			:: cache[i].w1 = BAD
			fi;
			memory[i].hi = cache[i].hi;
			memory[i].lo = cache[i].lo;
			memory[i].w0 = cache[i].w0;
			memory[i].w1 = cache[i].w1
		:: true
		fi;
#endif
		i = 0;
		open = false;
		committed = 0;
		freed = 0;
		crashed = true
	}
	:: crashes == CRASHES || damaged -> break
	od
}

/* Scans from the tail: last is the last sealed, counts the last that counts. */
inline scan()
{
	d_step {
		tail = (tail_cache[0] > tail_cache[1] -> tail_cache[0] : tail_cache[1]);
		damaged = !SEALED(tail);
		last = tail;
		counts = tail;
		t = tail + 1;
		do
		:: t < tail + C && SEALED(t) ->
			last = t;
			if
			:: KIND(S(t).lo) != MERGED -> counts = t
			:: else
			fi;
			t++
		:: else -> break
		od;
		do
		:: t < tail + C ->
			if
			:: !NOT_YET(t) -> damaged = true
			:: else
			fi;
			t++
		:: else -> break
		od;
		/*
		 * Each transaction's fate: a merged one's is that of the first
		 * after it that is not merged, and an anchor commits nothing.
		 */
		if
		:: !damaged ->
			counting = false;
			t = last;
			do
			:: t > tail ->
				if
				:: KIND(S(t).lo) == COMMIT -> counting = true
				:: KIND(S(t).lo) == ANCHOR ->
#ifdef BROKEN_ANCHOR_COUNTS
					counting = true
#else
					counting = false
#endif
				:: else
				fi;
				if
				:: counting && KIND(S(t).lo) != ANCHOR ->
					assert(fate[t] != DEAD); /* never counts again */
					fate[t] = ALIVE
				:: else ->
					assert(fate[t] != ALIVE); /* never lost */
					fate[t] = DEAD
				fi;
				t--
			:: else -> break
			od;
			t = last + 1;
			do
			:: t <= MAXT ->
				assert(fate[t] != ALIVE);
				fate[t] = DEAD;
				t++
			:: else -> break
			od;
			t = tail + 1;
			do
			:: t <= MAXT ->
				/* All of a chain or none. */
				assert(fate[t] == fate[chain_end[t]]);
				t++
			:: else -> break
			od;
			t = tail + 1;
			do
			:: t <= MAXT ->
				if
				:: fate[t] == DEAD -> chain_end[t] = t
				:: else
				fi;
				t++
			:: else -> break
			od
		:: else
		fi;
		t = 0;
		counting = false
	}
}

proctype Engine()
{
	byte t, tail, last, counts, next, end;
	bool counting;

again:
	{
		do
		:: crashed -> skip
		:: !crashed -> break
		od;
		scan();
		if
		:: damaged ->
			assert(flipped); /* a crash cannot make it */
			goto finished
		:: else -> assert(!flipped)
		fi;
		/* Blocks are home and the disk is flushed: the tail. */
		tail_cache[0] = counts;
		tail_cache[1] = counts;
		fence_tail();
#ifdef BROKEN_ANCHOR_REUSES
		/* Broken: the anchor takes the number after the last that counts. */
		next = counts + 1;
#else
		next = last + 1;
#endif
		if
		:: next > MAXT -> goto finished
		:: else
		fi;
		write_body(next, ANCHOR);
		fence_slot(next);
		seal(next, ANCHOR);
		fence_slot(next);
		d_step {
			committed = next;
			freed = counts;
			last = counts;
			open = true;
			next++;
			/* The numbers from here on are new transactions. */
			t = next;
			do
			:: t <= MAXT ->
				fate[t] = UNKNOWN;
				chain_end[t] = t;
				t++
			:: else -> break
			od;
			t = 0;
			tail = 0;
			counts = 0;
			last = 0
		}
		do
		:: next <= MAXT ->
			end = next;
			do
			:: end < MAXT && end < next + CHAIN - 1 -> end++
			:: break
			od;
			/* Wait for the checkpoint while the ring has no free slot. */
#ifndef BROKEN_NO_SLOT_WAIT
			end < freed + C;
#endif
			atomic {
				t = next;
				do
				:: t <= end ->
					chain_end[t] = end;
					t++
				:: else -> break
				od;
				t = next
			}
			do
			:: t <= end ->
				write_body(t, (t < end -> MERGED : COMMIT));
#ifndef BROKEN_NO_BODY_FENCE
				fence_slot(t);
#endif
				seal(t, (t < end -> MERGED : COMMIT));
#ifdef BROKEN_CHAIN_FENCE
				/* Broken: one fence for all seals of a chain. */
				if
				:: t == end ->
					atomic {
						fence_slot(t);
						if
						:: end > next -> fence_slot(end - 1)
						:: else
						fi;
						if
						:: end > next + 1 -> fence_slot(end - 2)
						:: else
						fi
					}
				:: else
				fi;
#else
				fence_slot(t);
#endif
				t++
			:: else -> break
			od;
			atomic {
				/* nvj_commit returns. */
				t = next;
				do
				:: t <= end ->
					fate[t] = ALIVE;
					t++
				:: else -> break
				od;
				t = 0;
				committed = end;
				next = end + 1;
				end = 0
			}
		:: next > MAXT -> goto finished
		od
	} unless {
		atomic {
			crashed ->
			crashed = false;
			opening++;
			t = 0;
			tail = 0;
			last = 0;
			counts = 0;
			next = 0;
			end = 0;
			counting = false;
			goto again
		}
	};
finished:
	/* Off by itself: a crash now is nothing new to the region. */
	skip;
end_off:
	do
	:: atomic {
		crashed && !damaged ->
		crashed = false;
		opening++;
		t = 0;
		tail = 0;
		last = 0;
		counts = 0;
		next = 0;
		end = 0;
		counting = false;
		goto again
	}
	:: damaged -> break
	od
}

/* Moves the tail to the last commit: both copies, fence, then slots are free. */
proctype Checkpoint()
{
	byte target, mine;

end_idle:
	{
		atomic {
			open && committed > freed ->
			target = committed;
			mine = opening
		};
		tail_cache[0] = target;
		tail_cache[1] = target;
#ifndef BROKEN_TAIL_FENCE
		fence_tail();
		freed = target;
#else
		/* Broken: slots are used again before the tail is persistent. */
		freed = target;
		fence_tail();
#endif
		target = 0;
		mine = 0;
		goto end_idle
	} unless {
		atomic {
			target && (!open || mine != opening) ->
			target = 0;
			mine = 0;
			goto end_idle
		}
	}
}

init
{
	atomic {
		/* As formatted: transaction 0 is an anchor, all else is 0. */
		byte i = 0;
		do
		:: i < C ->
			cache[i].hi = NONE;
			memory[i].hi = NONE;
			i++
		:: else -> break
		od;
		cache[0].hi = 0;
		cache[0].lo = CONTENT(0, ANCHOR);
		cache[0].w0 = CONTENT(0, ANCHOR);
		cache[0].w1 = CONTENT(0, ANCHOR);
		fence_slot(0);
		i = 0;
		do
		:: i <= MAXT ->
			chain_end[i] = i;
			i++
		:: else -> break
		od;
		run Power();
		run Engine();
		run Checkpoint()
	}
}
