/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By a restartable sequence (rseq(2), Linux 4.18; glibc registers each thread since
 * 2.35): a few instructions of which the kernel knows. If the thread loses the
 * processor between the first and the last, or gets a signal, it goes on at another
 * place; so who has read that he is on a processor still is when he adds.
 */
#include "processor.h"

#include <sched.h>
#include <stddef.h>

/* ThreadSanitizer does not see what is not written in C. */
#if defined(__SANITIZE_THREAD__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#endif

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(WATCHED)
#if __GLIBC_PREREQ(2, 35)
#define HAVE_RSEQ 1
#endif
#endif

#ifdef HAVE_RSEQ
#include <sys/rseq.h>

_Static_assert(offsetof(struct rseq, cpu_id) == 4 && offsetof(struct rseq, rseq_cs) == 8 &&
		       RSEQ_SIG == 0x53053053,
	       "as the sequence below has them");

bool nvju_can_add_here(void)
{
	return __rseq_size > 0;
}

static int number(void)
{
	int processor;

	if (!nvju_can_add_here())
		return sched_getcpu();
	__asm__ volatile("movl %%fs:4(%1), %0" : "=r"(processor) : "r"(__rseq_offset));
	return processor;
}

/*
 * From 1 to 2 it is a sequence, of which 3 is the description: version, flags, first
 * instruction, length, and where to go on if it was broken, 4. What lies before that
 * is the signature that the kernel looks for. The description is taken back, as the
 * kernel would look at it later, when the library is perhaps not mapped any more.
 */
bool nvju_add_here(unsigned processor, uint64_t *word, uint64_t value)
{
	__asm__ goto(".pushsection __rseq_cs, \"aw\"\n\t"
		     ".balign 32\n"
		     "3:\n\t"
		     ".long 0, 0\n\t"
		     ".quad 1f, 2f - 1f, 4f\n\t"
		     ".popsection\n\t"
		     "leaq 3b(%%rip), %%rax\n\t"
		     "movq %%rax, %%fs:8(%[thread])\n"
		     "1:\n\t"
		     "cmpl %[processor], %%fs:4(%[thread])\n\t"
		     "jne 4f\n\t"
		     "addq %[value], %[word]\n"
		     "2:\n\t"
		     "movq $0, %%fs:8(%[thread])\n\t"
		     ".pushsection .text.unlikely, \"ax\"\n\t"
		     ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1, so that it is an instruction */
		     ".long 0x53053053\n"
		     "4:\n\t"
		     "movq $0, %%fs:8(%[thread])\n\t"
		     "jmp %l[elsewhere]\n\t"
		     ".popsection"
		     :
		     : [thread] "r"(__rseq_offset), [processor] "r"(processor), [value] "r"(value),
		       [word] "m"(*word)
		     : "rax", "memory", "cc"
		     : elsewhere);
	return true;
elsewhere:
	return false;
}

#else

bool nvju_can_add_here(void)
{
	return false;
}

static int number(void)
{
	return sched_getcpu();
}

bool nvju_add_here(unsigned processor, uint64_t *word, uint64_t value)
{
	(void)processor;
	(void)word;
	(void)value;
	return false;
}

#endif

unsigned nvju_processor(void)
{
	/* Negative as long as the thread is not registered. */
	int processor = number();

	return processor < 0 ? 0 : (unsigned)processor;
}
