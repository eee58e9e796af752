// SPDX-License-Identifier: GPL-2.0
/* What all mounts share. */
#include <linux/proc_fs.h>

#include "journal.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define DIRECTORY "fs/" KBUILD_MODNAME

void jfsnvj_dirty_inode(struct inode *inode)
{
	trace_jfsnvj_dirty_inode(inode);
}

void jfsnvj_put_super(struct super_block *sb)
{
	trace_jfsnvj_put_super(sb);
}

void jfsnvj_sync_begins(struct file *file, int datasync)
{
	trace_jfsnvj_sync_file_enter(file, datasync);
}

int jfsnvj_sync_ends(struct file *file, int error)
{
	trace_jfsnvj_sync_file_exit(file_inode(file), error);
	return error;
}

/* The holder's inode is used as long as it has the page. */
void jfsnvj_page_wait(struct super_block *sb, const struct inode *holder)
{
	trace_jfsnvj_page_wait(sb->s_dev, holder ? holder->i_ino : 0);
}

void jfsnvj_page_waited(struct super_block *sb)
{
	trace_jfsnvj_page_waited(sb->s_dev);
}

int jfsnvj_init(void)
{
	int err;

	/* A metapage is a block of the engine, and is a page. */
	BUILD_BUG_ON(PAGE_SIZE != NVJ_BLOCK_BYTES || PSIZE != NVJ_BLOCK_BYTES);
	if (!proc_mkdir(DIRECTORY, NULL))
		return -ENOMEM;
	err = nvjk_claims_init();
	if (err)
		remove_proc_entry(DIRECTORY, NULL);
	return err;
}

void jfsnvj_exit(void)
{
	nvjk_claims_exit();
	remove_proc_entry(DIRECTORY, NULL);
}
