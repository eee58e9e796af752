/* SPDX-License-Identifier: Apache-2.0 */
/* Counts instructions of a child that runs one at a time. */
#include "step.h"

#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __x86_64__

/* More than that is no measurement of a few operations. */
#define MOST_INSTRUCTIONS UINT64_C(20000000)

/* A store of movntdq or movntps in the second opcode map. */
static bool is_nt_store(uint8_t opcode)
{
	return opcode == 0xe7 || opcode == 0x2b;
}

/* 0F AE: clwb, clflushopt, clflush, sfence, mfence, and others. */
static void count_0fae(struct stepped *c, uint8_t modrm, bool prefix_66, bool prefix_f)
{
	unsigned which = modrm >> 3 & 7;

	if (prefix_f)
		return;
	if (modrm >> 6 == 3)
		c->fences += which == 7 || which == 6;
	else
		c->flushes += which == 7 || (which == 6 && prefix_66);
}

static void count_instruction(struct stepped *c, const uint8_t *at)
{
	bool prefix_66 = false, prefix_f = false, wide = false;

	c->instructions++;
	for (;; at++) {
		if (*at == 0x66)
			prefix_66 = true;
		else if (*at == 0xf2 || *at == 0xf3)
			prefix_f = true;
		else if (*at != 0xf0 && *at != 0x2e && *at != 0x36 && *at != 0x3e && *at != 0x26 &&
			 *at != 0x64 && *at != 0x65)
			break;
	}
	if ((*at & 0xf0) == 0x40) /* REX */
		wide = *at++ & 8;
	if (at[0] == 0x0f && at[1] == 0xae)
		count_0fae(c, at[2], prefix_66, prefix_f);
	else if (at[0] == 0x0f && at[1] == 0xc3) /* movnti */
		c->nt_bytes += wide ? 8 : 4;
	else if (at[0] == 0x0f && is_nt_store(at[1]))
		c->nt_bytes += at[1] == 0xe7 && !prefix_66 ? 8 : 16;
	else if (at[0] == 0xc5 && is_nt_store(at[2])) /* VEX, two bytes */
		c->nt_bytes += at[1] & 4 ? 32 : 16;
	else if (at[0] == 0xc4 && (at[1] & 0x1f) == 1 && is_nt_store(at[3]))
		c->nt_bytes += at[2] & 4 ? 32 : 16;
	else if (at[0] == 0x62 && (at[1] & 7) == 1 && is_nt_store(at[4])) /* EVEX */
		c->nt_bytes += 16u << (at[3] >> 5 & 3);
}

static void child(int (*begin)(void *argument), int (*work)(void *argument), void *argument)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) || begin(argument))
		_exit(1);
	raise(SIGSTOP);
	if (work(argument))
		_exit(1);
	raise(SIGSTOP);
	_exit(0);
}

/* The child has our addresses: what it will do next is read from our own memory. */
static bool follow(pid_t pid, struct stepped *c)
{
	struct user_regs_struct registers;
	int status;

	while (c->instructions < MOST_INSTRUCTIONS) {
		if (ptrace(PTRACE_GETREGS, pid, NULL, &registers))
			return false;
		count_instruction(c, (const uint8_t *)(uintptr_t)registers.rip);
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid ||
		    !WIFSTOPPED(status))
			return false;
		if (WSTOPSIG(status) == SIGSTOP)
			return true;
		if (WSTOPSIG(status) != SIGTRAP)
			return false;
	}
	return false;
}

bool step_through(int (*begin)(void *argument), int (*work)(void *argument), void *argument,
		  struct stepped *counts)
{
	int status;
	bool done;
	pid_t pid;

	memset(counts, 0, sizeof(*counts));
	pid = fork();
	if (pid < 0)
		return false;
	if (!pid)
		child(begin, work, argument);
	done = waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && follow(pid, counts);
	kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status) && !WIFSIGNALED(status))
		;
	return done;
}

#else

bool step_through(int (*begin)(void *argument), int (*work)(void *argument), void *argument,
		  struct stepped *counts)
{
	(void)begin;
	(void)work;
	(void)argument;
	memset(counts, 0, sizeof(*counts));
	return false;
}

#endif
