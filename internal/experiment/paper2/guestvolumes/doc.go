// Package guestvolumes repeats Fig. 8 of paper 2 on cgroup v2, under io.cost and under BFQ, in
// guests: the shares of two containers that sync, with a volume each.
package guestvolumes
