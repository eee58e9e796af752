// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/fs/ext4nvj/DISK/nvjournal: counters of the journal (mount/statistics.c).
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "fs/ext4/ext4.h"
#include "jbd2/journal.h"

static int show(struct seq_file *seq, void *v)
{
	struct super_block *sb = seq->private;
	struct nvjk_mount *nvj = EXT4_SB(sb)->s_nvj;
	struct nvjk_statistics *s;

	/* The file is removed before the journal is. */
	if (!nvj || !EXT4_SB(sb)->s_journal)
		return 0;
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	nvjk_journal_statistics(EXT4_SB(sb)->s_journal, s);
	nvjk_show_statistics(seq, nvj, s);
	kfree(s);
	return 0;
}

void ext4nvj_create_proc(struct super_block *sb, struct proc_dir_entry *directory)
{
	if (EXT4_SB(sb)->s_nvj)
		proc_create_single_data("nvjournal", 0444, directory, show, sb);
}
