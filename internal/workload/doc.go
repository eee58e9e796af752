// Package workload is the load of Daybook's experiments: sequential reads,
// metadata at a set rate, and single operations, run by a child process inside
// a cgroup. The child is this same program ([RunIfAsked]), so that an
// experiment needs no other tool, and a killed experiment leaves no load
// behind. It is not a general benchmark: for that, use fio.
package workload
