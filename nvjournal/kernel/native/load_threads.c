// SPDX-License-Identifier: GPL-2.0
/*
 * The loads of ../bench as threads of the kernel, so that nothing of a run is a
 * system call: where a kernel runs as a program of another one (User Mode Linux),
 * a system call costs the host many microseconds. A line written to
 * /proc/daybook-load runs one load in a prepared directory:
 *
 *	varmail|create|clean DIRECTORY FILES THREADS MILLISECONDS SEED
 *
 * MILLISECONDS is the time limit; 0 for clean, and create may have none (0). The
 * threads are bound to the processors in turn. The write returns when they have
 * ended; reading the file then gives the line of JSON that the program of ../bench
 * prints. A load that failed fails the write, and says why in the kernel's log.
 */
#include "load_threads.h"

#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/namei.h>
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/uaccess.h>

#define LINE_BYTES 256u

/* One run at a time. */
static DEFINE_MUTEX(one);
static char result[LINE_BYTES];
struct path load_root;
static atomic_t preparing, running;
static struct completion prepared, started, ended;
static bool failed;

uint64_t now_ns(void)
{
	return ktime_get_ns();
}

void *load_memory(size_t count, size_t size)
{
	void *memory = kvcalloc(count, size, GFP_KERNEL);

	if (!memory)
		fail(ENOMEM, "no memory");
	return memory;
}

static void one_less(atomic_t *count, struct completion *last)
{
	if (atomic_dec_and_test(count))
		complete(last);
}

/* Ends a thread of the load. */
void fail(int error, const char *format, ...)
{
	struct worker *worker = kthread_data(current);
	struct va_format text = {.fmt = format};
	va_list arguments;

	va_start(arguments, format);
	text.va = &arguments;
	pr_err("load: %pV: error %d\n", &text, error);
	va_end(arguments);
	WRITE_ONCE(failed, true);
	if (!worker->begun)
		one_less(&preparing, &prepared);
	one_less(&running, &ended);
	kthread_complete_and_exit(NULL, 0);
}

static int work(void *argument)
{
	struct worker *worker = argument;
	struct crew *crew = worker->crew;
	uint64_t limit;

	worker->buffer = load_memory(1, BUFFER_BYTES);
	worker->sync_us = load_memory(MAX_SYNCS, sizeof(*worker->sync_us));
	crew->load->begin(worker);
	worker->begun = true;
	one_less(&preparing, &prepared);
	wait_for_completion(&started);
	limit = crew->limit_ns ? crew->begin_ns + crew->limit_ns : U64_MAX;
	while (now_ns() < limit && !READ_ONCE(failed) && crew->load->next(worker)) {
		worker->operations++;
		cond_resched();
	}
	if (crew->load->finish)
		crew->load->finish(worker);
	worker->end_ns = now_ns();
	one_less(&running, &ended);
	return 0;
}

static int run(struct crew *crew, struct worker *workers, struct task_struct **threads)
{
	unsigned int cpu = cpumask_first(cpu_online_mask);

	atomic_set(&preparing, crew->threads);
	atomic_set(&running, crew->threads);
	init_completion(&prepared);
	init_completion(&started);
	init_completion(&ended);
	failed = false;
	for (unsigned int n = 0; n < crew->threads; n++) {
		struct worker *worker = &workers[n];
		struct task_struct *thread;

		worker->crew = crew;
		worker->number = n;
		worker->random = random_seed(crew, n);
		worker->last = NO_FILE;
		thread = kthread_create(work, worker, "load/%u", n);
		if (IS_ERR(thread)) {
			while (n-- > 0)
				kthread_stop(threads[n]); /* none has started */
			return PTR_ERR(thread);
		}
		kthread_bind(thread, cpu);
		cpu = cpumask_next_wrap(cpu, cpu_online_mask);
		threads[n] = thread;
	}
	for (unsigned int n = 0; n < crew->threads; n++) {
		get_task_struct(threads[n]);
		wake_up_process(threads[n]);
	}
	wait_for_completion(&prepared);
	crew->begin_ns = now_ns();
	complete_all(&started);
	wait_for_completion(&ended);
	for (unsigned int n = 0; n < crew->threads; n++) {
		kthread_stop_put(threads[n]);
		crew->end_ns = max(crew->end_ns, workers[n].end_ns);
	}
	return failed ? -EIO : 0;
}

static int compare(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

/* Of sorted times; 0 if there are none. */
static u32 percentile(const u32 *us, size_t count, unsigned int percent)
{
	return count ? us[(count * percent + 99) / 100 - 1] : 0;
}

#define SECONDS "%llu.%06llu"
#define OF_US(us) (u64)(us) / 1000000, (u64)(us) % 1000000

static int print_result(const struct crew *crew, const struct worker *workers)
{
	u64 operations = 0, syncs = 0, us = (crew->end_ns - crew->begin_ns) / 1000;
	size_t count = 0;
	u32 *all;

	for (unsigned int n = 0; n < crew->threads; n++) {
		operations += workers[n].operations;
		syncs += workers[n].syncs;
	}
	all = kvcalloc(syncs + 1, sizeof(*all), GFP_KERNEL);
	if (!all)
		return -ENOMEM;
	for (unsigned int n = 0; n < crew->threads; n++)
		for (u64 k = 0; k < workers[n].syncs && k < MAX_SYNCS; k++)
			all[count++] = workers[n].sync_us[k];
	sort(all, count, sizeof(*all), compare, NULL);
	scnprintf(result, sizeof(result),
		  "{\"operations\": %llu, \"seconds\": " SECONDS ", \"syncs\": %llu, "
		  "\"sync_p50_seconds\": " SECONDS ", \"sync_p95_seconds\": " SECONDS ", "
		  "\"sync_p99_seconds\": " SECONDS "}\n",
		  operations, OF_US(us), syncs, OF_US(percentile(all, count, 50)),
		  OF_US(percentile(all, count, 95)), OF_US(percentile(all, count, 99)));
	kvfree(all);
	return 0;
}

static int load(struct crew *crew)
{
	struct worker *workers = kvcalloc(crew->threads, sizeof(*workers), GFP_KERNEL);
	struct task_struct **threads = kvcalloc(crew->threads, sizeof(*threads), GFP_KERNEL);
	int error = workers && threads ? run(crew, workers, threads) : -ENOMEM;

	if (!error)
		error = print_result(crew, workers);
	for (unsigned int n = 0; workers && n < crew->threads; n++) {
		kvfree(workers[n].buffer);
		kvfree(workers[n].sync_us);
		kvfree(workers[n].file);
	}
	kvfree(threads);
	kvfree(workers);
	return error;
}

/* Runs what a line asks for. */
static int run_line(const char *line, struct crew *crew)
{
	static const struct load *const loads[] = {&load_varmail, &load_create, &load_clean};
	char name[16], directory[MAX_DIRECTORY];
	unsigned int milliseconds;
	int error;

	if (sscanf(line, "%15s %127s %u %u %u %llu", name, directory, &crew->files, &crew->threads,
		   &milliseconds, &crew->seed) != 6)
		return -EINVAL;
	for (unsigned int n = 0; n < ARRAY_SIZE(loads); n++)
		if (!strcmp(name, loads[n]->name))
			crew->load = loads[n];
	/* varmail never ends by itself, and clean must end by itself. */
	if (!crew->load || !crew->files || !crew->threads || crew->threads > MAX_THREADS ||
	    (crew->load == &load_clean && milliseconds) ||
	    (crew->load == &load_varmail && (!milliseconds || crew->files / crew->threads < 4)))
		return -EINVAL;
	crew->limit_ns = milliseconds * 1000000ull;
	crew->directory = "."; /* of load_root */
	random_contents(crew);
	error = kern_path(directory, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &load_root);
	if (error)
		return error;
	error = load(crew);
	path_put(&load_root);
	return error;
}

static ssize_t write(struct file *file, const char __user *from, size_t bytes, loff_t *at)
{
	char line[LINE_BYTES];
	struct crew *crew;
	int error = mutex_lock_interruptible(&one);

	if (error)
		return error;
	crew = kvzalloc(sizeof(*crew), GFP_KERNEL);
	result[0] = 0;
	if (!crew)
		error = -ENOMEM;
	else if (bytes >= sizeof(line))
		error = -EINVAL;
	else if (copy_from_user(line, from, bytes))
		error = -EFAULT;
	if (!error) {
		line[bytes] = 0;
		error = run_line(line, crew);
	}
	kvfree(crew);
	mutex_unlock(&one);
	return error ? error : bytes;
}

static ssize_t read(struct file *file, char __user *to, size_t bytes, loff_t *at)
{
	ssize_t done = mutex_lock_interruptible(&one);

	if (done)
		return done;
	done = simple_read_from_buffer(to, bytes, at, result, strlen(result));
	mutex_unlock(&one);
	return done;
}

static const struct proc_ops operations = {
	.proc_read = read,
	.proc_write = write,
	.proc_lseek = default_llseek,
};

static void __exit load_exit(void)
{
	remove_proc_entry("daybook-load", NULL);
}

static int __init load_init(void)
{
	return proc_create("daybook-load", 0600, NULL, &operations) ? 0 : -ENOMEM;
}

module_init(load_init);
module_exit(load_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("loads of a file system in threads of the kernel");
