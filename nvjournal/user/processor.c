/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Additions to counters of a processor, with a restartable sequence (rseq(2),
 * Linux 4.18; glibc registers each thread since 2.35). The sequence is a few
 * instructions that the kernel knows. If the thread is preempted or gets a
 * signal between the first and the last of them, it continues at another place.
 * So a thread that has read its processor number is still on that processor
 * when it adds.
 */
#include "processor.h"

#include <sched.h>
#include <stddef.h>

/* ThreadSanitizer does not see accesses in assembly. */
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
 * The sequence is from label 1 to 2. Its description is at 3: version, flags,
 * first instruction, length, and the address 4, at which an interrupted
 * sequence continues. Before that address is the signature that the kernel
 * checks. The pointer to the description is cleared at the end, because the
 * kernel would read it later, when the library may be unmapped.
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
		     ".byte 0x0f, 0xb9, 0x3d\n\t" /* ud1, so that the bytes are an instruction */
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
	/* Negative while the thread is not registered. */
	int processor = number();

	return processor < 0 ? 0 : (unsigned)processor;
}
