// Package spare adds to BPF programs others that run in their place where the kernel skips
// them.
//
// The kernel does not run a program on a processor where it is at work already
// (kernel/trace/bpf_trace.c, __bpf_trace_run). Since Linux 7 a task can be preempted in a
// program at a tracepoint. Until it has ended, no other task on that processor can have that
// program, and all their events are missing: often those of a whole time slice.
//
// So each program has spares: the same instructions, loaded again. They are attached, after
// the first, once the kernel has skipped a program: on many hosts it never does, and spares
// cost instructions in each event. The first one notes which event it has. A spare ends at
// once if it finds that note, and does the work if not. An event is then lost only if all
// spares are skipped, too. A note of the time before the spares is taken for that of the next
// event of its place, if that one is skipped. This event counts as lost.
package spare
