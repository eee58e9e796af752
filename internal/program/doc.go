// Package program runs external programs (mke2fs, fio, mariadbd, postgres, their
// clients), optionally in a cgroup and as another user. They end with this process:
// each is the leader of its own process group and gets SIGKILL when this process dies,
// however it dies. The context ends programs that the caller waits for ([Run],
// [Output]), with their process groups. The exception is [Command.Completes].
//
// Loads that are code of this repository are in package workload.
package program
