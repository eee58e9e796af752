// SPDX-License-Identifier: GPL-2.0
/*
 * A writer that runs in the process that asks for it, and so in the cgroup and on the
 * processor of that process, but needs one system call for its whole run. A process opens
 * /proc/daybook-writer and writes a line:
 *
 *	PATH WRITE_BYTES SYNC_BYTES FILE_BYTES SYNCS LEAST_MS MOST_MS
 *
 * The write returns when the run has ended; reading the same open file then gives a line of
 * JSON. The run makes the file, appends WRITE_BYTES at a time, and calls fsync whenever
 * SYNC_BYTES are written since the last one (0: never). A file of FILE_BYTES is truncated,
 * and grows again. The run ends after MOST_MS, or after LEAST_MS if SYNCS have been done
 * (0: it waits for MOST_MS). The line "stop" ends all runs.
 */
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/uaccess.h>

#define LINE_BYTES 256u
#define RESULT_BYTES 512u
#define PATH_BYTES 160u
#define MAX_WRITE_BYTES (4u << 20)
/* For so many calls of fsync the time is recorded. Further calls are only counted. */
#define MAX_SYNCS 262144u
/* The unit of these times: an fsync may take 1 us, and many seconds. */
#define TIME_NS 100u

struct job {
	char path[PATH_BYTES];
	unsigned int write_bytes, least_ms, most_ms;
	u64 sync_bytes, file_bytes, syncs;
};

struct run {
	struct job job;
	struct file *file;
	void *content;
	u32 *sync_time; /* in TIME_NS */
	u64 bytes, syncs, begin_ns, end_ns;
	u64 waits, preempted; /* of the process */
};

/* Counts the lines "stop". */
static atomic_t stops;

static int sync_file(struct run *run)
{
	u64 begin = ktime_get_ns(), time;
	int error = vfs_fsync(run->file, 0);

	time = (ktime_get_ns() - begin) / TIME_NS;
	if (run->syncs < MAX_SYNCS)
		run->sync_time[run->syncs] = min_t(u64, time, U32_MAX);
	run->syncs++;
	return error;
}

static bool is_over(const struct run *run, int stopped)
{
	u64 ms = (ktime_get_ns() - run->begin_ns) / 1000000;

	if (atomic_read(&stops) != stopped || ms >= run->job.most_ms)
		return true;
	return run->job.syncs && run->syncs >= run->job.syncs && ms >= run->job.least_ms;
}

static int write_all(struct run *run)
{
	const struct job *job = &run->job;
	int stopped = atomic_read(&stops), error = 0;
	u64 unsynced = 0;
	loff_t at = 0;

	run->waits = current->nvcsw;
	run->preempted = current->nivcsw;
	run->begin_ns = ktime_get_ns();
	while (!error && !is_over(run, stopped)) {
		ssize_t done;

		if (fatal_signal_pending(current))
			return -EINTR;
		if (at + job->write_bytes > job->file_bytes) {
			error = vfs_truncate(&run->file->f_path, 0);
			if (error)
				break;
			at = 0;
		}
		done = kernel_write(run->file, run->content, job->write_bytes, &at);
		if (done != (ssize_t)job->write_bytes)
			return done < 0 ? done : -ENOSPC;
		run->bytes += done;
		unsynced += done;
		if (job->sync_bytes && unsynced >= job->sync_bytes) {
			unsynced = 0;
			error = sync_file(run);
		}
		cond_resched();
	}
	run->end_ns = ktime_get_ns();
	run->waits = current->nvcsw - run->waits;
	run->preempted = current->nivcsw - run->preempted;
	return error;
}

static int compare(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

/* Of sorted times; 0 if there are none. */
static u64 percentile_ns(const u32 *time, size_t count, unsigned int percent)
{
	return count ? (u64)time[(count * percent + 99) / 100 - 1] * TIME_NS : 0;
}

#define SECONDS "%llu.%09llu"
#define OF_NS(ns) (u64)(ns) / NSEC_PER_SEC, (u64)(ns) % NSEC_PER_SEC

static void print_result(const struct run *run, char *result)
{
	size_t count = min_t(u64, run->syncs, MAX_SYNCS);

	sort(run->sync_time, count, sizeof(*run->sync_time), compare, NULL);
	scnprintf(result, RESULT_BYTES,
		  "{\"bytes\": %llu, \"seconds\": " SECONDS ", \"syncs\": %llu, "
		  "\"sync_p50_seconds\": " SECONDS ", \"sync_p99_seconds\": " SECONDS ", "
		  "\"sync_max_seconds\": " SECONDS ", \"waits\": %llu, \"preempted\": %llu}\n",
		  run->bytes, OF_NS(run->end_ns - run->begin_ns), run->syncs,
		  OF_NS(percentile_ns(run->sync_time, count, 50)),
		  OF_NS(percentile_ns(run->sync_time, count, 99)),
		  OF_NS(percentile_ns(run->sync_time, count, 100)), run->waits, run->preempted);
}

static int run_job(struct run *run, char *result)
{
	struct job *job = &run->job;
	int error = -ENOMEM;

	run->content = kvmalloc(job->write_bytes, GFP_KERNEL);
	run->sync_time = kvmalloc_array(MAX_SYNCS, sizeof(*run->sync_time), GFP_KERNEL);
	if (!run->content || !run->sync_time)
		goto out;
	get_random_bytes(run->content, job->write_bytes); /* a journal may omit zeros */
	run->file = filp_open(job->path, O_WRONLY | O_CREAT | O_TRUNC | O_LARGEFILE, 0600);
	if (IS_ERR(run->file)) {
		error = PTR_ERR(run->file);
		goto out;
	}
	error = write_all(run);
	if (!error)
		print_result(run, result);
	filp_close(run->file, NULL);
out:
	kvfree(run->content);
	kvfree(run->sync_time);
	return error;
}

static int run_line(const char *line, char *result)
{
	struct run *run = kvzalloc(sizeof(*run), GFP_KERNEL);
	struct job *job = &run->job;
	int error = -EINVAL;

	if (!run)
		return -ENOMEM;
	if (sscanf(line, "%159s %u %llu %llu %llu %u %u", job->path, &job->write_bytes,
		   &job->sync_bytes, &job->file_bytes, &job->syncs, &job->least_ms,
		   &job->most_ms) == 7 &&
	    job->write_bytes && job->write_bytes <= MAX_WRITE_BYTES &&
	    job->file_bytes >= job->write_bytes && job->most_ms)
		error = run_job(run, result);
	if (error)
		pr_err("writer: %s: error %d\n", job->path, error);
	kvfree(run);
	return error;
}

static ssize_t write(struct file *file, const char __user *from, size_t bytes, loff_t *at)
{
	char line[LINE_BYTES], *result = file->private_data;
	int error;

	if (bytes >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, from, bytes))
		return -EFAULT;
	line[bytes] = 0;
	if (!strcmp(line, "stop\n")) {
		atomic_inc(&stops);
		return bytes;
	}
	result[0] = 0;
	error = run_line(line, result);
	return error ? error : bytes;
}

static ssize_t read(struct file *file, char __user *to, size_t bytes, loff_t *at)
{
	const char *result = file->private_data;

	return simple_read_from_buffer(to, bytes, at, result, strlen(result));
}

static int open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(RESULT_BYTES, GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static int release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static const struct proc_ops operations = {
	.proc_open = open,
	.proc_release = release,
	.proc_read = read,
	.proc_write = write,
	.proc_lseek = default_llseek,
};

static void __exit writer_exit(void)
{
	remove_proc_entry("daybook-writer", NULL);
}

static int __init writer_init(void)
{
	return proc_create("daybook-writer", 0600, NULL, &operations) ? 0 : -ENOMEM;
}

module_init(writer_init);
module_exit(writer_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a writer that calls fsync, in one system call");
