/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way home: checkpoint with frozen images, a disk whose cache may lose what
 * was not flushed, the tail, revoke and reuse of a block by the caller, replay.
 *
 * The caller changes lines of two blocks of two lines each, one handle after the
 * other, frees a block (nvj_revoke), uses it for data of his own once that is
 * committed (he writes straight to the disk), and takes it again (nvj_create). A
 * leader closes and seals meanwhile, a checkpoint writes blocks home, line by
 * line, from a copy of a version, and of the disk's cache each sector may reach the
 * platter by itself at any time. A frozen version has only the lines that changed
 * after it; the others are those of the next newer version. A crash at any point; recovery is
 * made of steps, too, and may crash. The ring is endless here: see ring.pml.
 *
 * Proved: after recovery each block is as of the last sealed transaction, which
 * is not before the last acknowledged; nothing is ever written to a block that
 * the caller uses for data; nothing deadlocks.
 */
#ifndef OPS
#define OPS 5 /* changes in all */
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#define BLOCKS 2
#define IMAGES 4 /* of a block */
#define NO 255
#define DATA_VALUE 200

/* What a block is to its caller. */
#define USED 0
#define FREED 1 /* from the revoke on, until that is committed and it is used again */
#define DATA 2
byte state[BLOCKS];
byte freed_by[BLOCKS];
byte content[BLOCKS * 2];
byte ops;

/* Records, with the block's whole content for the checks; mask says what replay has. */
#define UPDATE 0
#define REVOKE 1
typedef Record {
	byte tid, kind, block, mask, line0, line1;
	bool creates
};
Record record[OPS];
byte records;
byte low[OPS + 2];

byte running = 1;
byte seal_stored, sealed, committed; /* the seal: stored; fenced; and all told */
byte tail, tail_fenced;

/* The block's entry. */
typedef Image {
	bool used;
	byte tid, revoked_by, lines, line0, line1 /* lines: of a frozen image, those that it has */
};
Image image[BLOCKS * IMAGES];
byte current[BLOCKS] = NO;
bool created[BLOCKS];
byte home_tid[BLOCKS];
bool writing[BLOCKS]; /* a version goes home */
byte writing_revoked_by[BLOCKS];

byte cache[BLOCKS * 2], disk[BLOCKS * 2];

bool up = true;
bool over; /* recovery is through */
byte crashes;

#if defined(BROKEN_CHECKPOINT_IGNORES_REVOKE)
#define DEAD(i) false
#elif defined(BROKEN_REVOKE_EARLY)
/* Broken: forgotten at once, though the revoke may not survive. */
#define DEAD(i) (image[i].revoked_by != 0)
#else
#define DEAD(i) (image[i].revoked_by != 0 && image[i].revoked_by <= sealed)
#endif

#define WRITING_DEAD(b) (writing[b] && writing_revoked_by[b] != 0 && writing_revoked_by[b] <= sealed)

/* A sector of the disk: what its cache had before may have reached the platter by itself. */
inline write_sector(i, value)
{
	if
	:: cache[i] != disk[i] -> disk[i] = cache[i]
	:: true
	fi;
	cache[i] = value
}

/* Under the block's lock: an unused image of block b, into n. */
inline take_image(b)
{
	n = b * IMAGES;
	do
	:: image[n].used -> n++
	:: else -> break
	od;
	assert(n < (b + 1) * IMAGES);
	image[n].used = true;
	image[n].tid = 0;
	image[n].revoked_by = 0;
	image[n].lines = 0
}

inline give_image(i)
{
	image[i].used = false;
	image[i].tid = 0;
	image[i].revoked_by = 0;
	image[i].lines = 0;
	image[i].line0 = 0;
	image[i].line1 = 0
}

/* Of the versions that are committed only the newest is needed. */
inline trim(b)
{
	n = b * IMAGES;
	do
	:: n < (b + 1) * IMAGES ->
		if
		:: image[n].used && n != current[b] ->
			newer = (current[b] != NO && image[current[b]].tid != 0 && image[current[b]].tid <= sealed);
			m = b * IMAGES;
			do
			:: m < (b + 1) * IMAGES ->
				newer = newer || (image[m].used && m != current[b] && image[m].tid <= sealed && image[m].tid > image[n].tid);
				m++
			:: else -> break
			od;
			if
			:: newer || image[n].tid <= home_tid[b] || DEAD(n) -> give_image(n)
			:: else
			fi
		:: else
		fi;
		n++
	:: else -> break
	od;
	newer = false;
	m = 0;
	n = 0
}

/* The newest frozen version of b, into m; NO: none. */
inline newest_frozen(b)
{
	m = NO;
	n = b * IMAGES;
	do
	:: n < (b + 1) * IMAGES ->
		if
		:: image[n].used && n != current[b] && (m == NO || image[n].tid > image[m].tid) -> m = n
		:: else
		fi;
		n++
	:: else -> break
	od
}

/* Lines of the image are about to change: the newest frozen version keeps them. */
inline keep(b, changes)
{
	newest_frozen(b);
	if
	:: m != NO ->
#ifdef BROKEN_KEEP_AGAIN
		/* Broken: also what was kept before. */
		image[m].lines = 0;
#endif
		if
		:: (changes & 1) && !(image[m].lines & 1) -> image[m].line0 = image[current[b]].line0
		:: else
		fi;
		if
		:: (changes & 2) && !(image[m].lines & 2) -> image[m].line1 = image[current[b]].line1
		:: else
		fi;
		image[m].lines = image[m].lines | (changes)
	:: else
	fi;
	m = 0;
	n = 0
}

/* nvj_access, the change and nvj_log of one line (or all, as the block is new). */
inline log(b, line)
{
	if
	:: current[b] == NO ->
		take_image(b);
		current[b] = n;
		image[n].line0 = content[b * 2];
		image[n].line1 = content[b * 2 + 1]
	:: else
	fi;
	content[b * 2 + line] = ops + 1;
	/* Freeze: from now on the older version's lines are kept before they change. */
	c = current[b];
	if
	:: image[c].tid != 0 && image[c].tid < running && image[c].tid > home_tid[b] ->
#ifndef BROKEN_NO_FREEZE
		take_image(b);
		image[n].tid = image[c].tid
#else
		skip
#endif
	:: else
	fi;
	keep(b, (created[b] -> 3 : 1 << line));
	image[c].line0 = content[b * 2];
	image[c].line1 = content[b * 2 + 1];
	image[c].tid = running;
	record[records].tid = running;
	record[records].kind = UPDATE;
	record[records].block = b;
	record[records].creates = created[b];
#ifdef BROKEN_CREATE_DIFFERENCE
	/* Broken: only what differs from the last image, though that is revoked. */
	record[records].mask = 1 << line;
#else
	record[records].mask = (created[b] -> 3 : 1 << line);
#endif
	record[records].line0 = content[b * 2];
	record[records].line1 = content[b * 2 + 1];
	records++;
	created[b] = false;
	ops++;
	trim(b);
	c = 0
}

inline revoke(b)
{
	record[records].tid = running;
	record[records].kind = REVOKE;
	record[records].block = b;
	records++;
	/* Versions so far end with this transaction; the newest is kept aside. */
	if
#ifndef BROKEN_REVOKE_UNMARKED
	:: writing[b] && (writing_revoked_by[b] == 0 || writing_revoked_by[b] > running) -> writing_revoked_by[b] = running
#endif
	:: else
	fi;
	n = b * IMAGES;
	do
	:: n < (b + 1) * IMAGES ->
		if
		:: image[n].used && n != current[b] && (image[n].revoked_by == 0 || image[n].revoked_by > running) ->
			image[n].revoked_by = running
		:: else
		fi;
		n++
	:: else -> break
	od;
	if
	:: current[b] != NO && image[current[b]].tid != 0 ->
		c = current[b];
		if
		:: image[c].tid < running && image[c].tid > home_tid[b] ->
			image[c].revoked_by = running;
			image[c].lines = 3;
			current[b] = NO
		:: else -> image[c].tid = 0
		fi
	:: else
	fi;
	created[b] = true;
	state[b] = FREED;
	freed_by[b] = running;
	ops++;
	trim(b);
	c = 0
}

/*
 * What comes in which order, where any order is too much: FREEZES has no revoke,
 * REVOKES one block only.
 */
#if defined(FREEZES)
#define MAY_LOG_00 (ops % 2 == 0)
#define MAY_LOG_01 (ops % 2 == 1)
#define MAY_LOG_10 (ops == 2)
#define MAY_REVOKE false
#elif defined(REVOKES)
#define MAY_LOG_00 (ops == 0 || ops >= 3)
#define MAY_LOG_01 (ops == 1 || ops >= 3)
#define MAY_LOG_10 false
#define MAY_REVOKE (ops == 1 || ops == 2)
#else
#define MAY_LOG_00 true
#define MAY_LOG_01 true
#define MAY_LOG_10 true
#define MAY_REVOKE true
#endif

proctype Caller()
{
	byte n, m, c;
	bool newer;

end:
	{
	if
	:: atomic { up && ops < OPS && state[0] == USED && MAY_LOG_00 -> log(0, 0) }
	:: atomic { up && ops < OPS && state[0] == USED && MAY_LOG_01 -> log(0, 1) }
	:: atomic { up && ops < OPS && state[1] == USED && MAY_LOG_10 -> log(1, 0) }
	:: atomic { up && ops < OPS && state[0] == USED && MAY_REVOKE -> revoke(0) }
	/* Free, and that is committed: for his own data, or as a new block. */
	:: atomic {
		up && state[0] == FREED && committed >= freed_by[0] ->
		state[0] = DATA;
		write_sector(0, DATA_VALUE);
		write_sector(1, DATA_VALUE)
	}
	:: atomic {
		up && ops < OPS && (state[0] == FREED || state[0] == DATA) ->
		state[0] = USED;
		log(0, 0)
	}
	fi;
	goto end
	} unless { over }
}

proctype Leader()
{
	byte b, n, m;
	bool newer, waits;

end:
	{
	if
	:: atomic {
		up && records > 0 && record[records - 1].tid == running ->
		low[running] = records;
		running++
	};
		atomic { up -> seal_stored = running - 1 };
		atomic { up -> sealed = running - 1 };
		/* What this transaction revoked must not be under way. */
		atomic {
#ifdef BROKEN_REVOKE_NO_WAIT
			up ->
#else
			up && !WRITING_DEAD(0) && !WRITING_DEAD(1) ->
#endif
			trim(0);
			trim(1);
			committed = running - 1
		}
	fi;
	goto end
	} unless { over }
}

/* The newest committed version of b that is not at home, into v; NO: none. */
inline choose(b)
{
	v = NO;
#ifdef BROKEN_SKIP_CHANGED
	/* Broken: what was changed again is skipped, for its newer record supersedes. */
	if
	:: current[b] != NO && image[current[b]].tid != 0 && image[current[b]].tid <= sealed -> v = current[b]
	:: else
	fi;
#else
	n = b * IMAGES;
	do
	:: n < (b + 1) * IMAGES ->
		if
#ifdef BROKEN_NO_FREEZE
		:: image[n].used && image[n].tid != 0 -> v = n
#else
		:: image[n].used && image[n].tid != 0 && image[n].tid <= sealed ->
			if
			:: v == NO -> v = n
			:: else ->
				if
				:: image[n].tid > image[v].tid -> v = n
				:: else
				fi
			fi
#endif
		:: else
		fi;
		n++
	:: else -> break
	od;
#endif
	if
	:: v != NO && (image[v].tid <= home_tid[b] || DEAD(v)) -> v = NO
	:: else
	fi;
	n = 0
}

inline flush()
{
	disk[0] = cache[0];
	disk[1] = cache[1];
	disk[2] = cache[2];
	disk[3] = cache[3]
}

/* The content of version v of b, into copy0 and copy1. */
inline copy_version(b)
{
	if
	:: current[b] != NO ->
		copy0 = image[current[b]].line0;
		copy1 = image[current[b]].line1
	:: else
	fi;
	if
	:: v != current[b] ->
		/* From the newest frozen version down to this one: m is the tid of the last. */
		m = NO;
		do
		:: m == NO || m > image[v].tid ->
			n = b * IMAGES;
			newest = NO;
			do
			:: n < (b + 1) * IMAGES ->
				if
				:: image[n].used && n != current[b] && image[n].tid < m && (newest == NO || image[n].tid > image[newest].tid) -> newest = n
				:: else
				fi;
				n++
			:: else -> break
			od;
			m = image[newest].tid;
#ifdef BROKEN_NEWER_IGNORED
			/* Broken: only the lines that the version itself has. */
			newest = v;
			m = image[v].tid;
#endif
			if
			:: image[newest].lines & 1 -> copy0 = image[newest].line0
			:: else
			fi;
			if
			:: image[newest].lines & 2 -> copy1 = image[newest].line1
			:: else
			fi
		:: else -> break
		od
	:: else
	fi;
	newest = 0;
	m = 0;
	n = 0
}

proctype Checkpoint()
{
	byte b, v, n, m, target, copy0, copy1, newest, written;
	bool newer;

end:
	{
	if
	:: atomic {
		up && committed > tail ->
		target = committed;
		b = 0
	};
		do
		:: atomic {
			up && b < BLOCKS ->
			choose(b);
			if
			:: v != NO ->
				writing[b] = true;
				writing_revoked_by[b] = image[v].revoked_by;
				written = image[v].tid;
				copy_version(b)
			:: else
			fi
		};
			if
			:: v != NO ->
				atomic {
					up ->
					assert(state[b] != DATA);
					write_sector(b * 2, copy0)
				};
				atomic {
					up ->
					assert(state[b] != DATA);
#ifdef BROKEN_NO_COPY
					/* Broken: the disk reads the image, which may change meanwhile. */
					if
					:: v == current[b] -> copy1 = image[v].line1
					:: else
					fi;
#endif
					write_sector(b * 2 + 1, copy1)
				};
				atomic {
					up ->
					writing[b] = false;
					writing_revoked_by[b] = 0;
					if
					:: written > home_tid[b] -> home_tid[b] = written
					:: else
					fi;
					trim(b);
					copy0 = 0;
					copy1 = 0;
					written = 0;
					v = 0
				}
			:: else
			fi;
			atomic { b++; v = 0 }
		:: atomic { up && b == BLOCKS -> b = 0; break }
		od;
#ifdef BROKEN_TAIL_BEFORE_FLUSH
		atomic { up -> tail = target };
		atomic { up -> tail_fenced = target };
		atomic { up -> flush() };
#else
		atomic { up -> flush() };
		atomic { up -> tail = target };
		atomic { up -> tail_fenced = target };
#endif
		target = 0
	fi;
	goto end
	} unless { over }
}

/* What was in the cache may have reached what lasts, or not. */
inline survive(cached, lasting)
{
	if
	:: cached != lasting -> lasting = cached
	:: cached = lasting
	fi
}

inline crash()
{
	crashes++;
	up = false;
	survive(cache[0], disk[0]);
	survive(cache[1], disk[1]);
	survive(cache[2], disk[2]);
	survive(cache[3], disk[3]);
	survive(tail, tail_fenced)
}

/* Replay of one block onto what is at home: line0, line1; touched: there is something to write. */
inline replay(b)
{
	d_step {
		line0 = cache[b * 2];
		line1 = cache[b * 2 + 1];
		touched = false;
		after = 0;
		i = low[tail];
		do
		:: i < records ->
			if
#ifdef BROKEN_REPLAY_UNCOMMITTED_REVOKE
			:: record[i].kind == REVOKE && record[i].block == b -> after = i
#else
			:: record[i].kind == REVOKE && record[i].block == b && record[i].tid > tail && record[i].tid <= last -> after = i
#endif
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = low[tail];
#ifdef BROKEN_REPLAY_IGNORES_REVOKE
		after = 0;
#endif
		do
		:: i < records ->
			if
			:: record[i].kind == UPDATE && record[i].block == b && record[i].tid > tail && record[i].tid <= last && i >= after ->
				touched = true;
				if
				:: record[i].mask & 1 -> line0 = record[i].line0
				:: else
				fi;
				if
				:: record[i].mask & 2 -> line1 = record[i].line1
				:: else
				fi
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		after = 0
	}
}

/* What the disk must have: each block as of transaction last. */
inline check()
{
	d_step {
		b = 0;
		do
		:: b < BLOCKS ->
			line0 = 0;
			line1 = 0;
			touched = true; /* defined */
			i = 0;
			do
			:: i < records ->
				if
				:: record[i].block == b && record[i].tid <= last ->
					if
					:: record[i].kind == REVOKE -> touched = false
					:: else ->
						touched = touched || record[i].creates;
						line0 = record[i].line0;
						line1 = record[i].line1
					fi
				:: else
				fi;
				i++
			:: else -> break
			od;
			assert(!touched || (disk[b * 2] == line0 && disk[b * 2 + 1] == line1));
			b++
		:: else -> break
		od
	}
}

proctype Recovery()
{
	byte last, b, i, line0, line1, after;
	bool touched;

	/* Never a crash: whoever can do nothing then, and has not ended, is in a deadlock. */
	if
	:: goto finished
	:: true
	fi;
	/* Nobody else does anything any more: all in one, with crashes where it may choose one. */
	atomic {
		crash();
		/* The last seal is there, or not yet. */
		if
		:: last = sealed
		:: sealed != seal_stored -> last = seal_stored
		fi;
		assert(last >= committed);
again:
		b = 0;
		do
		:: b < 2 * BLOCKS ->
			/* A line each: a crash may be between any two. */
			replay(b / 2);
			if
			:: touched ->
				assert(state[b / 2] != DATA);
				if
				:: b % 2 -> line0 = line1
				:: else
				fi;
				write_sector(b, line0)
			:: else
			fi;
			b++;
			if
			:: crashes < CRASHES -> crash(); goto again
			:: true
			fi
		:: else -> break
		od;
#ifndef BROKEN_RECOVERY_NO_FLUSH
		flush();
#endif
		tail = last;
		if
		:: crashes < CRASHES -> crash(); goto again
		:: true
		fi;
		tail_fenced = last;
		/* What only the cache has is lost by a crash now, if there is anything. */
		cache[0] = disk[0];
		cache[1] = disk[1];
		cache[2] = disk[2];
		cache[3] = disk[3];
		check();
		over = true
	};
finished:
	skip
}

init
{
	atomic {
		run Caller();
		run Leader();
		run Checkpoint();
		run Recovery()
	}
}
