/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A transaction of jfsnvj finds its own lock of a page without jfsTxnLock, and never that of
 * another one, also if that one ends meanwhile and its lock becomes something else. This
 * compiles the file of the kernel that does it, kernel/jfs/locks.c. What the other thread does
 * happens before any of the reads there: all orders are tried.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/expect.h"

/* --- As in JFS's headers; a lock has these places for its numbers ----------------- */

typedef uint16_t lid_t;
typedef uint16_t tid_t;

struct tlock {
	lid_t next;
	tid_t tid;
	char rest[60];
};

struct metapage {
	uint16_t xflag;
	lid_t lid;
};

struct jfs_inode_info {
	lid_t xtlid;
};

struct inode {
	mode_t i_mode;
	struct jfs_inode_info info;
};

#define COMMIT_PAGE 1
#define tlckXTREE 0x0100
#define tlckDTREE 0x0200
#define JFS_IP(inode) (&(inode)->info)
#define lid_to_tlock(number) (&locks[number])

static struct tlock locks[4];
static void before_read(void);

#define READ_ONCE(x) (before_read(), *(const volatile __typeof__(x) *)&(x))
#define smp_rmb() __asm__ volatile("" ::: "memory")

#define JFSNVJ_JOURNAL_H
#include "../kernel/jfs/locks.c"

/* --- The other thread ------------------------------------------------------------- */

enum { LOCK = 2, OTHER = 7, STEPS = 3, READS = 3 };

static struct metapage page;
static struct inode inode;
static lid_t *held; /* where the page's lock is entered */
static unsigned int linelock_index;
static unsigned int done, reads;
/* So many of its steps are done before each read. */
static unsigned int steps_before[READS];

/* The transaction ends. Its lock gets free, and then is a linelock, of 28 places. */
static void step(unsigned int number)
{
	switch (number) {
	case 0:
		*held = 0;
		break;
	case 1:
		locks[LOCK].tid = 0;
		break;
	case 2: {
		const uint8_t counts[2] = {28, (uint8_t)linelock_index};

		memcpy(&locks[LOCK].tid, counts, sizeof(counts));
		break;
	}
	}
}

static void before_read(void)
{
	if (reads < READS)
		while (done < steps_before[reads])
			step(done++);
	reads++;
}

static void reset(tid_t tid, lid_t *where)
{
	page = (struct metapage){.xflag = COMMIT_PAGE};
	inode = (struct inode){.i_mode = S_IFREG};
	locks[LOCK].tid = tid;
	held = where;
	*held = LOCK;
	done = reads = 0;
	memset(steps_before, 0, sizeof(steps_before));
}

static struct tlock *find(tid_t tid, int type)
{
	return jfsnvj_own_lock(tid, &inode, &page, type);
}

/* --- Tests ------------------------------------------------------------------------ */

static void finds_its_own(void)
{
	reset(OTHER, &page.lid);
	expect(find(OTHER, tlckDTREE) == &locks[LOCK]);
	reset(OTHER, &page.lid);
	expect(find(OTHER + 1, tlckDTREE) == NULL);
	/* A lock without a transaction is for any thread. */
	reset(0, &page.lid);
	expect(find(0, tlckDTREE) == NULL);
	reset(0, &page.lid);
	expect(find(OTHER, tlckDTREE) == NULL);
	reset(OTHER, &page.lid);
	page.lid = 0;
	expect(find(OTHER, tlckDTREE) == NULL);
}

/* In a directory's inode there is a lock of the extent tree's root besides that of names. */
static void finds_that_of_a_root(void)
{
	reset(OTHER, &inode.info.xtlid);
	page.xflag = 0;
	inode.i_mode = S_IFDIR;
	expect(find(OTHER, tlckXTREE) == &locks[LOCK]);
	reads = 0;
	expect(find(OTHER, tlckDTREE) == NULL);
	reads = 0;
	page.xflag = COMMIT_PAGE;
	expect(find(OTHER, tlckXTREE) == NULL);
}

static void finds_none_that_becomes_another(lid_t *where)
{
	for (linelock_index = 0; linelock_index <= 28; linelock_index++)
		for (unsigned int order = 0; order < 1u << (2 * READS); order++) {
			tid_t mine;

			reset(0, where);
			step(2);
			mine = locks[LOCK].tid;
			reset(OTHER, where);
			if (where == &inode.info.xtlid) {
				page.xflag = 0;
				inode.i_mode = S_IFDIR;
			}
			for (unsigned int n = 0; n < READS; n++)
				steps_before[n] = order >> 2 * n & STEPS;
			expect(find(mine, tlckXTREE) == NULL);
		}
}

int main(void)
{
	finds_its_own();
	finds_that_of_a_root();
	finds_none_that_becomes_another(&page.lid);
	finds_none_that_becomes_another(&inode.info.xtlid);
	return 0;
}
