/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A freeze of ext4nvj: a thread holds back all handles (kernel/jbd2/updates.c). No
 * transactions: the counters of one are enough, gate.pml has several.
 *
 * Each of HANDLES threads starts and stops ROUNDS handles, each on any processor. A
 * handle may reserve another one, which starts afterwards and is not held back. One
 * thread holds back all handles FREEZES times. Counters and flag are sequentially
 * consistent; with BROKEN_FLAG_LATE, BROKEN_COUNT_LATE and BROKEN_RESERVED_LATE one store
 * is not, and other threads see it at any time later, as a processor's store buffer does.
 * With BROKEN_RESERVED_UNORDERED the thread reads what reserved handles have changed before
 * it reads that none is left, as a processor may do with loads that have no order.
 *
 * No handle is open while all are held back. Nobody waits for ever: a wake-up that comes
 * before the thread sleeps, but after it has checked, is not lost; one before is.
 */
#ifndef HANDLES
#define HANDLES 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef FREEZES
#define FREEZES 1
#endif
#define CPUS 2

byte started[CPUS], ended[CPUS];
short reserved[CPUS]; /* one processor may count the begin of it, and another one its end */
bool held_back;
bool wake_freezer, wake_handle[HANDLES];
/* What the counts are there to say. */
byte open, pending;
bool frozen;
byte changes; /* of reserved handles */
/* Stores that are late. */
bool flag_late;
byte count_late[CPUS];
byte reserved_late[CPUS];

inline count_in()
{
#ifdef BROKEN_COUNT_LATE
	count_late[cpu]++
#else
	started[cpu]++
#endif
}

inline count_out()
{
#ifdef BROKEN_COUNT_LATE
	/* Later stores come after it. */
	count_late[cpu] == 0;
#endif
	ended[cpu]++
}

inline choose_cpu()
{
	if
	:: cpu = 0
	:: cpu = 1
	fi
}

inline tell_freezer()
{
	if
	:: held_back -> wake_freezer = true
	:: else
	fi
}

inline end_handle()
{
	atomic {
		count_out();
		open--;
		cpu = 0
	};
	tell_freezer()
}

proctype Handle(byte me)
{
	byte rounds, cpu;
	bool seen, has_reserved;

	do
	:: rounds < ROUNDS ->
		rounds++;
		do
		:: true ->
#ifdef BROKEN_FLAG_FIRST
			seen = held_back;
#endif
			atomic {
				choose_cpu();
				count_in()
			};
#ifndef BROKEN_FLAG_FIRST
			seen = held_back;
#endif
			if
			:: !seen -> break
			:: else
			fi;
			seen = false;
			count_out();
#ifndef BROKEN_BACK_SILENTLY
			tell_freezer();
#endif
			do
			:: wake_handle[me] = false;
				if
				:: !held_back -> break
				:: else -> wake_handle[me]
				fi
			od
		od;
		atomic {
			assert(!frozen);
			open++
		};
		if
		:: atomic {
			has_reserved = true;
			pending++;
			reserved[cpu]++
		}
		:: skip
		fi;
		end_handle();
		if
		:: has_reserved ->
			has_reserved = false;
#ifdef BROKEN_RESERVED_HELD
			!held_back;
#endif
			atomic {
				choose_cpu();
				count_in()
			};
			atomic {
				assert(!frozen);
				changes++;
				open++
			};
			end_handle();
			atomic {
				choose_cpu();
				pending--;
#ifdef BROKEN_RESERVED_LATE
				reserved_late[cpu]++;
#else
				reserved[cpu]--;
#endif
				cpu = 0
			};
			tell_freezer()
		:: else
		fi
	:: else -> break
	od
}

inline any_open()
{
#ifdef BROKEN_STARTED_FIRST
	sum = started[0];
	sum = sum + started[1];
	sum = sum - ended[0];
	sum = sum - ended[1]
#else
	sum = -ended[0];
	sum = sum - ended[1];
	sum = sum + started[0];
	sum = sum + started[1]
#endif
}

inline any_reserved()
{
#ifdef BROKEN_RESERVED_UNORDERED
	seen = changes;
#endif
	sum = reserved[0];
	sum = sum + reserved[1]
}

inline await_ended()
{
	do
	:: wake_freezer = false;
#ifdef BROKEN_RESERVED_FIRST
		any_reserved();
		if
		:: sum == 0 -> any_open()
		:: else
		fi;
#else
		any_open();
#ifndef BROKEN_RESERVED_IGNORED
		if
		:: sum == 0 -> any_reserved()
		:: else
		fi;
#endif
#endif
		if
		:: sum == 0 -> break
		:: else -> wake_freezer
		fi
	od
}

proctype Freezer()
{
	byte freezes, n, seen;
	short sum;

	do
	:: freezes < FREEZES ->
		freezes++;
#ifdef BROKEN_COUNTS_FIRST
		await_ended();
		held_back = true;
#else
#ifdef BROKEN_FLAG_LATE
		flag_late = true;
#else
		held_back = true;
#endif
		await_ended();
#endif
		atomic {
#ifndef BROKEN_RESERVED_UNORDERED
			seen = changes;
#endif
			assert(open == 0 && pending == 0 && seen == changes);
			seen = 0;
			frozen = true
		};
		atomic {
			assert(open == 0 && pending == 0);
			frozen = false
		};
		!flag_late;
		held_back = false;
#ifndef BROKEN_NOT_WOKEN
		n = 0;
		do
		:: n < HANDLES -> wake_handle[n] = true; n++
		:: else -> break
		od
#endif
	:: else -> break
	od
}

/* What is late becomes visible. */
proctype Memory()
{
end:
	do
	:: atomic { flag_late -> held_back = true; flag_late = false }
	:: atomic { count_late[0] > 0 -> started[0]++; count_late[0]-- }
	:: atomic { count_late[1] > 0 -> started[1]++; count_late[1]-- }
	:: atomic { reserved_late[0] > 0 -> reserved[0]--; reserved_late[0]-- }
	:: atomic { reserved_late[1] > 0 -> reserved[1]--; reserved_late[1]-- }
	od
}

init
{
	byte n;

	atomic {
		n = 0;
		do
		:: n < HANDLES -> run Handle(n); n++
		:: else -> break
		od;
		run Freezer();
#if defined(BROKEN_FLAG_LATE) || defined(BROKEN_COUNT_LATE) || defined(BROKEN_RESERVED_LATE)
		run Memory()
#endif
	}
}
