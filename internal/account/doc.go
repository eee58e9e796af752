// Package account holds the one type that flows through Daybook: who did how
// much I/O, of which kind, on which device, in one interval.
//
// The journal and cgroup packages produce the parts, meter assembles a
// [Sample], and control, top, metrics and reports read it. Nothing in this
// package knows a tracepoint, a cgroup file or a device node, and nothing that
// reads a Sample needs to.
//
// All sizes are bytes and all times seconds. The kinds of I/O are those of
// paper 1, section 2.2, widened by what its section 4.3 could not see.
package account
