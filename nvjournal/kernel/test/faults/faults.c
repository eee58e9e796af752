// SPDX-License-Identifier: GPL-2.0
/*
 * Injects faults for tests in guests. One function of the kernel or of a module
 * returns at once with a value that the test chooses, and does nothing. So
 * ext4nvj.ko needs no code for faults, and the tested module is the one that is
 * used.
 *
 * 	echo 0 >/sys/module/faults/parameters/value
 * 	echo ext4nvj:nvjk_flush_data >/sys/module/faults/parameters/function
 * 	cat /sys/module/faults/parameters/hits
 * 	echo >/sys/module/faults/parameters/function
 *
 * skip: that many calls run normally first. task: only calls of the thread with that
 * number are meant; 0: all. wait: the function does not return before another one is
 * chosen. So a test can hold a thread up between two steps. x86-64 only.
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/wait.h>

static DEFINE_MUTEX(lock);
static char name[KSYM_NAME_LEN];
static struct kprobe probe;
static atomic_long_t calls;
static unsigned long value, skip;
static int task;
static bool wait;

/* A thread that is held up has entered a fault, and leaves it when there is another one. */
static DECLARE_WAIT_QUEUE_HEAD(ended);
static unsigned long fault;
static atomic_t waiting;

/* Replaces the function, and is called as it is. */
static noinline unsigned long faults_wait(void)
{
	unsigned long this = READ_ONCE(fault);

	wait_event(ended, READ_ONCE(fault) != this);
	if (atomic_dec_and_test(&waiting))
		wake_up_all(&ended);
	return READ_ONCE(value);
}

/* Replaces the function: returns to its caller at once. */
void faults_return(void);
asm(".pushsection .text, \"ax\", @progbits\n"
    ".type faults_return, @function\n"
    ".globl faults_return\n"
    "faults_return:\n"
    "	" ASM_RET ".size faults_return, .-faults_return\n"
    ".popsection\n");

static int replace(struct kprobe *p, struct pt_regs *regs)
{
	int only = READ_ONCE(task);

	if (only && current->pid != only)
		return 0;
	if (atomic_long_inc_return(&calls) <= READ_ONCE(skip))
		return 0;
	if (READ_ONCE(wait)) {
		atomic_inc(&waiting);
		regs->ip = (unsigned long)faults_wait;
		return 1;
	}
	regs->ax = READ_ONCE(value);
	regs->ip = (unsigned long)faults_return;
	return 1;
}
NOKPROBE_SYMBOL(replace);

static void end_fault(void)
{
	if (name[0])
		unregister_kprobe(&probe);
	name[0] = 0;
	WRITE_ONCE(fault, fault + 1);
	wake_up_all(&ended);
	/* The module may be unloaded then. */
	wait_event(ended, !atomic_read(&waiting));
}

static int set_function(const char *text, const struct kernel_param *param)
{
	int error = 0;

	mutex_lock(&lock);
	end_fault();
	strscpy(name, text, sizeof(name));
	strim(name);
	if (name[0]) {
		atomic_long_set(&calls, 0);
		probe = (struct kprobe){.symbol_name = name, .pre_handler = replace};
		error = register_kprobe(&probe);
		if (error)
			name[0] = 0;
	}
	mutex_unlock(&lock);
	return error;
}

static int get_function(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%s\n", name);
}

static int get_hits(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%ld\n", max(0L, atomic_long_read(&calls) - (long)skip));
}

static const struct kernel_param_ops function_ops = {.set = set_function, .get = get_function};
static const struct kernel_param_ops hits_ops = {.get = get_hits};

module_param_cb(function, &function_ops, NULL, 0600);
module_param_cb(hits, &hits_ops, NULL, 0400);
module_param(value, ulong, 0600);
module_param(skip, ulong, 0600);
module_param(task, int, 0600);
module_param(wait, bool, 0600);

static int __init faults_init(void)
{
	return 0;
}

static void __exit faults_exit(void)
{
	end_fault();
}

module_init(faults_init);
module_exit(faults_exit);
MODULE_DESCRIPTION("Faults on purpose, for the tests of ext4nvj");
MODULE_LICENSE("GPL");
