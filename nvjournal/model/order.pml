/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of loads and stores of ext4nvj's kernel module that a processor may change in
 * order, and that no lock orders. One of them is chosen; each runs once.
 *
 * NEWEST (kernel/jbd2/transaction.c, handle.c): a handle of a later transaction stores that
 * it has started, and then reads what ext4 has in memory. A handle of an earlier transaction
 * changes that in two steps, and then reads whether a later one has started. If the later
 * handle sees half of the change, the earlier one sees that it must merge.
 *
 * WROTE (kernel/jbd2/ordered.c): the end of a write is counted and then announced. A thread
 * that has seen the end reads the count, and flushes the disk if it is a new one.
 *
 * FOUND (kernel/jbd2/pin.c, commit.c): a thread stores content and then the pointer to it, or
 * the number that says that it is complete. Another thread, without a lock, reads the
 * pointer and then the content.
 *
 * BROKEN_STORE_LATE: the first store becomes visible at any time later. BROKEN_LOAD_EARLY:
 * the second load is executed before the first one.
 */
bool first, second;         /* what one thread changes, in this order */
bool flag;                  /* what the other thread stores or waits for */
bool saw_first, saw_second; /* what the other thread saw */
bool result;
bool late;                  /* a store that is not visible yet */
byte done;

#ifdef NEWEST
proctype Earlier()
{
	first = true;
	second = true;
	/* A full barrier: both are visible. */
	result = flag; /* it merges */
	done++
}

proctype Later()
{
#ifdef BROKEN_STORE_LATE
	late = true;
#else
	flag = true;
#endif
	saw_first = first;
	saw_second = second;
	done++
}

#define VISIBLE flag
#define CORRECT (saw_first == saw_second || result)
#endif

#ifdef WROTE
proctype Earlier()
{
	first = true; /* counted */
	flag = true;  /* announced */
	done++
}

proctype Later()
{
#ifdef BROKEN_LOAD_EARLY
	saw_first = first;
#endif
	flag;
#ifndef BROKEN_LOAD_EARLY
	saw_first = first;
#endif
	done++
}

#define VISIBLE first
#define CORRECT saw_first
#endif

#ifdef FOUND
proctype Earlier()
{
#ifdef BROKEN_STORE_LATE
	late = true;
#else
	first = true;
#endif
	flag = true;
	done++
}

proctype Later()
{
	result = flag;
	saw_first = first;
	done++
}

#define VISIBLE first
#define CORRECT (!result || saw_first)
#endif

proctype Memory()
{
end:
	do
	:: atomic { late -> VISIBLE = true; late = false }
	od
}

init
{
	atomic {
		run Earlier();
		run Later();
		run Memory()
	};
	done == 2;
	assert(CORRECT)
}
