/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel types that the programs read, with only the fields that they read.
 * The loader relocates the offsets (CO-RE), so the order of the fields does not
 * matter. The names must be those of the kernel. A field that only some kernels
 * have is in a type with the suffix ___NAME. The programs check that the field
 * exists before they read it.
 */
#ifndef DAYBOOK_KERNEL_H
#define DAYBOOK_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_RB_NO_WAKEUP = 1,
};

/* include/linux/sched.h: stable bits */
#define PF_KTHREAD 0x00200000
#define PF_WQ_WORKER 0x00000020
/* include/uapi/linux/stat.h */
#define S_IFMT 00170000
#define S_IFBLK 0060000
/* include/uapi/linux/magic.h; ext2 and ext3 have the same number */
#define EXT4_SUPER_MAGIC 0xEF53
/* include/linux/jbd2.h: how each block that jbd2 makes itself begins */
#define JBD2_MAGIC_NUMBER 0xc03b3998U
#define JBD2_SUPERBLOCK_V1 3
#define JBD2_SUPERBLOCK_V2 4
#define JBD2_REVOKE_BLOCK 5
/* include/linux/blk_types.h: journal.CheckOperations compares them with the kernel's */
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_OP_FLUSH 2
#define REQ_OP_WRITE_ZEROES 9
/* include/linux/kdev_t.h: the kernel's own dev_t */
#define MINORBITS 20
/* include/uapi/linux/fcntl.h on every architecture but alpha, mips, parisc */
#define O_CREAT 00000100

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

enum bpf_func_id {
	BPF_FUNC_get_current_task_btf = 158,
};

enum cgroup_subsys_id {
	io_cgrp_id = 3,
};

enum req_flag_bits {
	__REQ_META = 12,
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	__u64 serial_nr; /* from 1 on; never used for another one */
};

struct css_set {
	struct cgroup_subsys_state *subsys[16];
};

struct task_struct {
	unsigned int flags;
	int pid;
	char comm[16];
	void *journal_info;
	struct css_set *cgroups;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct request_queue;

struct gendisk {
	int major;
	int first_minor;
	struct request_queue *queue;
};

struct block_device {
	__u32 bd_dev;
	struct gendisk *bd_disk;
};

struct super_block {
	__u32 s_dev;
	int s_count;
	unsigned long s_magic;
	struct dentry *s_root;
	struct block_device *s_bdev;
};

/* later kernels have a structure with a number in place of s_count */
struct refcount_struct {
	int refs;
};

struct super_block___refcount {
	struct refcount_struct s_passive;
};

struct address_space {
	struct inode *host;
};

/* not on kernels with CONFIG_PREEMPT_RT */
struct rw_semaphore {
	struct {
		__s64 counter;
	} owner;
};

struct inode {
	__u16 i_mode;
	__u32 i_nlink;
	__u32 i_rdev;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	struct rw_semaphore i_rwsem;
	struct address_space i_data;
};

struct dentry {
	struct inode *d_inode;
};

struct file {
	struct inode *f_inode;
};

struct page {
	unsigned long compound_head;
	struct address_space *mapping;
};

/* in 7.2, in place of compound_head */
struct page___compound_info {
	unsigned long compound_info;
};

/* since 5.16; later kernels removed the field from struct page */
struct folio {
	struct address_space *mapping;
};

struct bio_vec {
	struct page *bv_page;
};

struct bvec_iter {
	unsigned int bi_size;
	unsigned int bi_idx;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	unsigned int bi_opf;
	unsigned short bi_flags;
	struct bvec_iter bi_iter;
	struct blkcg_gq *bi_blkg;
	struct bio_vec *bi_io_vec;
	void *bi_end_io;
	void *bi_private;
};

/* until 5.11 */
struct bio___with_disk {
	struct gendisk *bi_disk;
};

struct request_queue {
	void *mq_ops;
	struct gendisk *disk;
};

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	unsigned int __data_len;
	__u64 __sector;
	struct bio *bio;
	struct bio *biotail;
	__u64 start_time_ns;
};

/* until 5.16 */
struct request___with_disk {
	struct gendisk *rq_disk;
};

/* the witness has the others of its fields; 7.2 has no b_end_io */
struct buffer_head___ends {
	char *b_data;
	void *b_end_io;
};

struct journal_s {
	struct block_device *j_dev;
	struct block_device *j_fs_dev;
};

struct transaction_s {
	struct journal_s *t_journal;
	unsigned int t_tid;
};

struct jbd2_journal_handle {
	struct transaction_s *h_transaction;
	int h_total_credits;
	unsigned int h_requested_credits;
};

struct transaction_run_stats_s {
	__u32 rs_handle_count;
	__u32 rs_blocks_logged;
};

/*
 * data_source since 5.19. Its value means that the kernel reads the memory, so
 * the file is written.
 */
struct iov_iter {
	bool data_source;
};

struct kiocb {
	struct file *ki_filp;
};

/* a kernel thread since 5.17 */
struct task_struct___worker {
	void *worker_private;
};

/* kernel/kthread.c */
struct kthread {
	void *data;
};

struct work_struct;

/* kernel/workqueue_internal.h: the data of a kernel thread that works on a queue */
struct worker___queue {
	struct work_struct *current_work;
	void *current_func;
};

/* fs/iomap/direct-io.c; its first member is a list or a work */
struct iomap_dio {
	struct kiocb *iocb;
	struct {
		struct {
			void *func;
		} work;
	} aio;
};

struct trace_event_raw_sys_enter {
	unsigned long args[6];
};

struct trace_event_raw_sys_exit {
	long ret;
};

#pragma clang attribute pop

#endif
