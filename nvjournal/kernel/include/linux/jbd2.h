/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface of jbd2 that ext4 uses, implemented by the journal in
 * persistent memory. The include path has this header before the kernel's own,
 * so that ext4's unmodified sources are compiled with it. Names and types of
 * fields are those of jbd2 where ext4 uses them. What ext4 does not use is
 * missing. The implementation is in jbd2/: each type here is the first field of
 * a larger type there.
 */
#ifndef _LINUX_JBD2_H
#define _LINUX_JBD2_H
/* Otherwise the kernel's header of that name would define the same types. */
#define JOURNAL_HEAD_H_INCLUDED

#include <linux/backing-dev.h>
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/version.h>
#include <linux/wait.h>

typedef unsigned int tid_t;
typedef struct jbd2_journal_handle handle_t;
typedef struct transaction_s transaction_t;
typedef struct journal_s journal_t;

/* --- Constants ------------------------------------------------------------ */

/*
 * After so many seconds a transaction is committed if there is no commit
 * option.
 */
#define JBD2_DEFAULT_MAX_COMMIT_AGE 5

/* journal_t.j_flags */
#define JBD2_UNMOUNT 0x001
#define JBD2_ABORT 0x002
#define JBD2_BARRIER 0x020
#define JBD2_ABORT_ON_SYNCDATA_ERR 0x040
#define JBD2_CYCLE_RECORD 0x080

/* For jbd2_journal_flush: erase the journal's blocks. This journal has none. */
#define JBD2_JOURNAL_FLUSH_DISCARD 0x0001
#define JBD2_JOURNAL_FLUSH_ZEROOUT 0x0002

/* Features of a block journal, which ext4 checks at mount. */
#define JBD2_FEATURE_COMPAT_CHECKSUM 0x00000001
#define JBD2_FEATURE_INCOMPAT_REVOKE 0x00000001
#define JBD2_FEATURE_INCOMPAT_64BIT 0x00000002
#define JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT 0x00000004
#define JBD2_FEATURE_INCOMPAT_CSUM_V2 0x00000008
#define JBD2_FEATURE_INCOMPAT_CSUM_V3 0x00000010
#define JBD2_FEATURE_INCOMPAT_FAST_COMMIT 0x00000020

/* --- Buffers -------------------------------------------------------------- */

/*
 * Bits of a buffer's state from BH_PrivateStart on. ext4's bits start after the
 * last one.
 */
enum jbd_state_bits {
	BH_JBD = BH_PrivateStart, /* b_private is a struct journal_head */
	BH_JournalHead,           /* lock of BH_JBD and b_private */
	BH_Verified,              /* ext4's: its checksum is known to be right */
	BH_Freed,                 /* never set: of file data in the journal */
	BH_JBDDirty,              /* never set, as that */
	BH_JBDPrivateStart,
};

BUFFER_FNS(JBD, jbd)
BUFFER_FNS(Verified, verified)
BUFFER_FNS(Freed, freed)
BUFFER_FNS(JBDDirty, jbddirty)

struct jbd2_buffer_trigger_type;

/*
 * For a buffer whose content is not all at home. It keeps the buffer in the
 * page cache. Otherwise the cache might drop the buffer, and later read older
 * content from the disk.
 */
struct journal_head {
	struct buffer_head *b_bh;
	transaction_t *b_transaction;      /* always NULL: file data is not journaled */
	transaction_t *b_next_transaction; /* always NULL */
	struct jbd2_buffer_trigger_type *b_triggers;
};

static inline struct journal_head *bh2jh(struct buffer_head *bh)
{
	return bh->b_private;
}

/*
 * A function that changes a block before it is logged, for example to set its
 * checksum.
 */
struct jbd2_buffer_trigger_type {
	void (*t_frozen)(struct jbd2_buffer_trigger_type *type, struct buffer_head *bh,
			 void *mapped_data, size_t size);
};

/* --- Inodes with ordered data ----------------------------------------------- */

#define __JI_COMMIT_RUNNING 0
#define __JI_WRITE_DATA 1
#define __JI_WAIT_DATA 2
/* A commit is processing its data. */
#define JI_COMMIT_RUNNING (1 << __JI_COMMIT_RUNNING)
/* The commit writes its data, and waits for it. */
#define JI_WRITE_DATA (1 << __JI_WRITE_DATA)
/* The commit waits for its data, which is being written. */
#define JI_WAIT_DATA (1 << __JI_WAIT_DATA)

/*
 * A file whose data must be on the disk before a transaction commits. The
 * fields for the current commit are separate from those for the next one: see
 * jbd2/ordered.c.
 */
struct jbd2_inode {
	transaction_t *i_transaction; /* always NULL: that file data is journaled in */
	struct inode *i_vfs_inode;
	/* For the current commit: a range in bytes, including the last one. */
	unsigned long i_flags;
	loff_t i_dirty_start;
	loff_t i_dirty_end;
	struct list_head i_list;
	/* For the next commit; the journal's list_lock protects them. */
	struct list_head i_next_list;
	unsigned long i_next_flags;
	loff_t i_next_start;
	loff_t i_next_end;
	u64 i_next_tid; /* the newest transaction that wants it */
};

/* --- Handles and transactions ------------------------------------------------ */

struct jbd2_journal_handle {
	/*
	 * NULL: jbd2__journal_restart has failed (then h_aborted is set), or the
	 * handle is reserved and not started.
	 */
	transaction_t *h_transaction;
	journal_t *h_journal;
	handle_t *h_rsv_handle; /* reserved with this one */
	int h_ref;              /* jbd2_journal_start is called while it is open */
	int h_err;
	int h_buffer_credits; /* blocks that it may still change */
	int h_revoke_credits; /* blocks that it may still free */
	unsigned int h_requested_credits;
	/* No bit fields: each handle stores all of them. */
	u8 h_sync; /* jbd2_journal_stop commits */
	u8 h_reserved;
	u8 h_aborted;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
	u8 h_invalid; /* of a file system without a journal: made by jbd2_alloc_handle */
	unsigned int saved_alloc_context; /* of such a handle */
#endif
	u8 h_type;
	u16 h_line_no;
	unsigned long h_start_jiffies;
};

enum transaction_state { T_RUNNING, T_COMMIT, T_FINISHED };

struct transaction_s {
	journal_t *t_journal;
	tid_t t_tid;
	enum transaction_state t_state;
	/*
	 * Used by ext4, which has a lock for it. Called back after the commit.
	 */
	struct list_head t_private_list;
};

/* Of the superblock of a journal on a disk, what ext4 reads. */
struct nvjk_no_superblock {
	__be32 s_nr_users;
};

struct journal_s {
	unsigned long j_flags; /* written under j_state_lock */
	int j_errno;
	rwlock_t j_state_lock;
	/* The newest transaction in which a handle was started. NULL: none. */
	transaction_t *j_running_transaction;
	transaction_t *j_committing_transaction; /* always NULL: the one above is as good */
	tid_t j_commit_sequence;                 /* committed when the journal was opened */

	int j_blocksize;
	struct block_device *j_dev; /* the file system's, as j_fs_dev */
	struct block_device *j_fs_dev;
	/*
	 * The journal on the disk, which stays empty. ext4 keeps its blocks
	 * allocated.
	 */
	struct inode *j_inode;
	unsigned long long j_blk_offset;
	unsigned int j_total_len; /* blocks of it */
	int (*j_bmap)(struct journal_s *journal, sector_t *block);

	struct task_struct *j_task;      /* the commit thread */
	unsigned long j_commit_interval; /* jiffies */
	u32 j_min_batch_time;
	u32 j_max_batch_time;

	void (*j_commit_callback)(journal_t *journal, transaction_t *transaction);
	int (*j_submit_inode_data_buffers)(struct jbd2_inode *jinode);
	int (*j_finish_inode_data_buffers)(struct jbd2_inode *jinode);
	void *j_private; /* the super_block */

	unsigned long j_fc_off; /* of fast commits, which there are none of */
	/*
	 * For a journal device with several users. ext4 checks it, and we
	 * refuse it.
	 */
	struct buffer_head *j_sb_buffer;
	struct nvjk_no_superblock *j_superblock;
};

/* --- Handles: jbd2/handle.c ----------------------------------------------------- */

static inline handle_t *journal_current_handle(void)
{
	return current->journal_info;
}

handle_t *jbd2_journal_start(journal_t *journal, int blocks);
handle_t *jbd2__journal_start(journal_t *journal, int blocks, int rsv_blocks, int revoke_records,
			      gfp_t gfp, unsigned int type, unsigned int line);
int jbd2_journal_start_reserved(handle_t *handle, unsigned int type, unsigned int line);
void jbd2_journal_free_reserved(handle_t *handle);
int jbd2_journal_extend(handle_t *handle, int blocks, int revoke_records);
int jbd2__journal_restart(handle_t *handle, int blocks, int revoke_records, gfp_t gfp);
int jbd2_journal_stop(handle_t *handle);

static inline int jbd2_handle_buffer_credits(handle_t *handle)
{
	/* A revoke has lines of its own, and takes none of a block's. */
	return handle->h_buffer_credits;
}

static inline int is_journal_aborted(journal_t *journal)
{
	return READ_ONCE(journal->j_flags) & JBD2_ABORT;
}

static inline int is_handle_aborted(handle_t *handle)
{
	return handle->h_aborted || is_journal_aborted(handle->h_journal);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
/* A handle of a file system that was mounted without a journal. ext4 sets h_invalid. */
static inline handle_t *jbd2_alloc_handle(gfp_t flags)
{
	return kzalloc(sizeof(handle_t), flags);
}

static inline void jbd2_free_handle(handle_t *handle)
{
	kfree(handle);
}
#endif

static inline void jbd2_journal_abort_handle(handle_t *handle)
{
	handle->h_aborted = 1;
}

/* --- Blocks: jbd2/buffer.c ------------------------------------------------------- */

int jbd2_journal_get_write_access(handle_t *handle, struct buffer_head *bh);
int jbd2_journal_get_create_access(handle_t *handle, struct buffer_head *bh);
void jbd2_journal_set_triggers(struct buffer_head *bh, struct jbd2_buffer_trigger_type *type);
int jbd2_journal_dirty_metadata(handle_t *handle, struct buffer_head *bh);
int jbd2_journal_forget(handle_t *handle, struct buffer_head *bh);
int jbd2_journal_revoke(handle_t *handle, unsigned long long block, struct buffer_head *bh);
int jbd2_journal_invalidate_folio(journal_t *journal, struct folio *folio, size_t offset,
				  size_t length);
bool jbd2_journal_try_to_free_buffers(journal_t *journal, struct folio *folio);
/*
 * Not in jbd2. Writes the committed data of these blocks to the disk; the next
 * commit flushes the disk's cache. -EAGAIN: some data are not committed. No
 * handle may be open.
 */
int jbd2_journal_bring_home(journal_t *journal, const u64 *blocks, unsigned int count);
/*
 * Not in jbd2. The buffer is no longer journaled, after
 * jbd2_journal_bring_home. The caller has locked its folio.
 */
void jbd2_journal_leave(journal_t *journal, struct buffer_head *bh);

/* Not in jbd2. Called when JBD2_BARRIER may have changed. */
void jbd2_journal_barrier_changed(journal_t *journal);

/* --- Commit: jbd2/commit.c --------------------------------------------------------- */

int jbd2_journal_start_commit(journal_t *journal, tid_t *tid);
int jbd2_log_wait_commit(journal_t *journal, tid_t tid);
int jbd2_transaction_committed(journal_t *journal, tid_t tid);
int jbd2_complete_transaction(journal_t *journal, tid_t tid);
int jbd2_journal_force_commit(journal_t *journal);
int jbd2_journal_force_commit_nested(journal_t *journal);
int jbd2_trans_will_send_data_barrier(journal_t *journal, tid_t tid);
tid_t jbd2_get_latest_transaction(journal_t *journal);

/* --- All handles: jbd2/updates.c ------------------------------------------------------ */

void jbd2_journal_lock_updates(journal_t *journal);
void jbd2_journal_unlock_updates(journal_t *journal);
int jbd2_journal_flush(journal_t *journal, unsigned int flags);

/* --- Ordered data: jbd2/ordered.c ------------------------------------------------------- */

struct jbd2_inode *jbd2_alloc_inode(gfp_t gfp);
void jbd2_free_inode(struct jbd2_inode *jinode);
void jbd2_journal_init_jbd_inode(struct jbd2_inode *jinode, struct inode *inode);
void jbd2_journal_release_jbd_inode(journal_t *journal, struct jbd2_inode *jinode);
int jbd2_journal_inode_ranged_write(handle_t *handle, struct jbd2_inode *jinode, loff_t start,
				    loff_t length);
int jbd2_journal_inode_ranged_wait(handle_t *handle, struct jbd2_inode *jinode, loff_t start,
				   loff_t length);
int jbd2_journal_submit_inode_data_buffers(struct jbd2_inode *jinode);
int jbd2_journal_finish_inode_data_buffers(struct jbd2_inode *jinode);
/*
 * Called when a write of file data has ended, before its writer is informed.
 * May be called from an interrupt.
 */
void jbd2_journal_wrote(journal_t *journal);
int jbd2_journal_begin_ordered_truncate(journal_t *journal, struct jbd2_inode *jinode,
					loff_t new_size);

/* --- The journal: jbd2/journal.c, jbd2/abort.c --------------------------------------------- */

int jbd2_journal_destroy(journal_t *journal);
void jbd2_journal_abort(journal_t *journal, int error);
int jbd2_journal_errno(journal_t *journal);
int jbd2_journal_clear_err(journal_t *journal);
void jbd2_journal_update_sb_errno(journal_t *journal);
int jbd2_journal_check_available_features(journal_t *journal, unsigned long compat,
					  unsigned long ro, unsigned long incompat);
int jbd2_journal_set_features(journal_t *journal, unsigned long compat, unsigned long ro,
			      unsigned long incompat);
void jbd2_journal_clear_features(journal_t *journal, unsigned long compat, unsigned long ro,
				 unsigned long incompat);

/*
 * Journals in a file or on a block device. ext4's functions that open them are
 * compiled, but never called (ext4/edits). These functions are not defined.
 */
journal_t *jbd2_journal_init_inode(struct inode *inode);
journal_t *jbd2_journal_init_dev(struct block_device *bdev, struct block_device *fs_dev,
				 unsigned long long start, int length, int block_bytes);
int jbd2_journal_wipe(journal_t *journal, int write);
int jbd2_journal_load(journal_t *journal);

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
static inline int jbd2_journal_blocks_per_page(struct inode *inode)
{
	return 1 << (PAGE_SHIFT - inode->i_sb->s_blocksize_bits);
}
#else
/* A folio of a file may have several pages. */
static inline int jbd2_journal_blocks_per_folio(struct inode *inode)
{
	return 1 << (PAGE_SHIFT + mapping_max_folio_order(inode->i_mapping) -
		     inode->i_sb->s_blocksize_bits);
}

/* The range that the current commit writes. false: none. */
static inline bool jbd2_jinode_get_dirty_range(const struct jbd2_inode *jinode, loff_t *start,
					       loff_t *end)
{
	*start = jinode->i_dirty_start;
	*end = jinode->i_dirty_end;
	return *start <= *end;
}
#endif

/* --- What else ext4 takes from this header ---------------------------------------------------- */

#define J_ASSERT(condition) BUG_ON(!(condition))
#define BUFFER_TRACE(bh, info)                                                                     \
	do {                                                                                       \
	} while (0)
#define jbd2_debug(level, format, ...) no_printk(format, ##__VA_ARGS__)

#ifndef EFSBADCRC
#define EFSBADCRC EBADMSG
#define EFSCORRUPTED EUCLEAN
#endif

#endif
