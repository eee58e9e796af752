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
 * chosen. So a test can hold a thread up between two steps. before: it is held up before
 * the function, which then runs. busy: so many milliseconds instead, in which its processor
 * does nothing else; the first call only. So a thread can be held up that has a spin lock.
 * x86-64 only.
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/ktime.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/wait.h>
#include <asm/nospec-branch.h>

static DEFINE_MUTEX(lock);
static char name[KSYM_NAME_LEN];
static struct kprobe probe;
static atomic_long_t calls;
static unsigned long value, skip;
static int task;
static bool wait, before;
static unsigned int busy;

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

/* Where the function is, before which threads are held up. */
static unsigned long target;

unsigned long faults_hold(void);
unsigned long faults_hold(void)
{
	unsigned long where = READ_ONCE(target);

	(void)faults_wait();
	return where;
}

/* Comes before the function, which gets its arguments. */
void faults_before(void);
asm(".pushsection .text, \"ax\", @progbits\n"
    ".type faults_before, @function\n"
    ".globl faults_before\n"
    "faults_before:\n"
    "	push %rdi\n"
    "	push %rsi\n"
    "	push %rdx\n"
    "	push %rcx\n"
    "	push %r8\n"
    "	push %r9\n"
    "	sub $8, %rsp\n"
    "	call faults_hold\n"
    "	add $8, %rsp\n"
    "	pop %r9\n"
    "	pop %r8\n"
    "	pop %rcx\n"
    "	pop %rdx\n"
    "	pop %rsi\n"
    "	pop %rdi\n"
    "	" ANNOTATE_RETPOLINE_SAFE "	jmp *%rax\n"
    ".size faults_before, .-faults_before\n"
    ".popsection\n");

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
	unsigned int left = READ_ONCE(busy);
	long number;

	if (only && current->pid != only)
		return 0;
	number = atomic_long_inc_return(&calls) - (long)READ_ONCE(skip);
	if (number <= 0)
		return 0;
	if (left) {
		u64 end = ktime_get_mono_fast_ns() + left * (u64)NSEC_PER_MSEC;

		while (number == 1 && ktime_get_mono_fast_ns() < end)
			cpu_relax();
		return 0;
	}
	if (READ_ONCE(wait)) {
		atomic_inc(&waiting);
		WRITE_ONCE(target, (unsigned long)p->addr);
		regs->ip = READ_ONCE(before) ? (unsigned long)faults_before
					     : (unsigned long)faults_wait;
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
module_param(before, bool, 0600);
module_param(busy, uint, 0600);

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
