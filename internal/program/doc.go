// Package program starts other people's programs (mke2fs, fio, mariadbd, postgres,
// their clients) in a cgroup and as another user, so that they end with us: each is
// the leader of a process group of its own and gets SIGKILL when this process
// dies, however it dies. Tools that are run and waited for ([Run], [Output]) are killed
// with their process groups when the context ends.
//
// The loads that are our own code are package workload's.
package program
