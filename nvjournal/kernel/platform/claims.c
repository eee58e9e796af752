// SPDX-License-Identifier: GPL-2.0
/*
 * Slices that programs use. A program that formats or recovers a slice opens
 * the pmem device as a block device, while mounts may use other slices of it.
 * So it cannot open the device exclusively. It claims the slice here, and
 * mounts and programs do not use each other's slices. The claim ends when the
 * file is closed, and so also when the program ends in any way.
 */
#include <linux/capability.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "internal.h"

#define FILE_NAME "fs/" KBUILD_MODNAME "/regions"
/* The most bytes of a request: two numbers and a path. */
#define MOST_BYTES (PATH_MAX + 64u)

/* The claim of an open file. */
struct claim {
	struct mutex lock;
	struct nvjk_region *region; /* NULL: none yet */
};

static int show(struct seq_file *seq, void *unused)
{
	nvjk_regions_show(seq);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	struct claim *claim = kzalloc(sizeof(*claim), GFP_KERNEL);
	int error;

	if (!claim)
		return -ENOMEM;
	mutex_init(&claim->lock);
	error = single_open(file, show, claim);
	if (error)
		kfree(claim);
	return error;
}

static struct claim *claim_of(const struct file *file)
{
	const struct seq_file *seq = file->private_data;

	return seq->private;
}

static int release(struct inode *inode, struct file *file)
{
	struct claim *claim = claim_of(file);

	nvjk_region_close(claim->region);
	kfree(claim);
	return single_release(inode, file);
}

static int take(struct claim *claim, const char *text)
{
	char user[NVJK_USER_BYTES], comm[TASK_COMM_LEN];
	u64 offset, size;
	int at = 0;

	if (sscanf(text, "%llu %llu %n", &offset, &size, &at) != 2 || !at || !text[at] || !size)
		return -EINVAL;
	if (claim->region)
		return -EBUSY;
	get_task_comm(comm, current);
	snprintf(user, sizeof(user), "the process %s[%d]", comm, task_tgid_nr(current));
	return nvjk_region_open(&claim->region, text + at, offset, size, user, NULL);
}

static ssize_t write(struct file *file, const char __user *from, size_t bytes, loff_t *unused)
{
	struct claim *claim = claim_of(file);
	char *text;
	int error;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (!bytes || bytes > MOST_BYTES)
		return -EINVAL;
	text = memdup_user_nul(from, bytes);
	if (IS_ERR(text))
		return PTR_ERR(text);
	mutex_lock(&claim->lock);
	error = take(claim, text);
	mutex_unlock(&claim->lock);
	kfree(text);
	return error ? error : bytes;
}

static const struct proc_ops operations = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_write = write,
	.proc_release = release,
};

int nvjk_claims_init(void)
{
	return proc_create(FILE_NAME, 0644, NULL, &operations) ? 0 : -ENOMEM;
}

void nvjk_claims_exit(void)
{
	remove_proc_entry(FILE_NAME, NULL);
}
