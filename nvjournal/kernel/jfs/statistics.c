// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/fs/jfsnvj/DISK/nvjournal: counters of the journal (mount/statistics.c), as
 * long as the mount is read-write.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#include "journal.h"

static int show(struct seq_file *seq, void *unused)
{
	struct jfsnvj *j = seq->private;
	struct nvjk_statistics *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return -ENOMEM;
	nvj_statistics(j->nvj, &s->engine);
	nvjk_read_holds(&j->one_lock_holds, j->nvj, s);
	nvjk_disk_counts(j->disk, &s->disk);
	nvjk_region_counts(j->mount->region, &s->region);
	s->images_bytes = nvj_images(j->nvj) * NVJ_BLOCK_BYTES;
	s->data_flushes = atomic64_read(&j->flushes);
	nvjk_show_statistics(seq, j->mount, s);
	kfree(s);
	return 0;
}

void jfsnvj_proc_create(struct jfsnvj *j)
{
	char path[64];

	snprintf(path, sizeof(path), "fs/" KBUILD_MODNAME "/%s", j->sb->s_id);
	j->proc = proc_mkdir(path, NULL);
	if (j->proc)
		proc_create_single_data("nvjournal", 0444, j->proc, show, j);
}

void jfsnvj_proc_remove(struct jfsnvj *j)
{
	proc_remove(j->proc);
	j->proc = NULL;
}
