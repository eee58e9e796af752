// Package guestshares repeats Figs. 2, 3, 5 and 6 of paper 1 on cgroup v2, under BFQ and
// under io.cost, in guests.
package guestshares
