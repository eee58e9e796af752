// Package witness counts the journal's dirtied blocks a second time, with
// another method than the handles estimator of package journal, so that tests
// can compare the two. Its programs (bpf/, GPL-2.0) attach to functions of jbd2
// and ext4 by fentry and fexit. It is for tests only: not every kernel supports
// that, function names are no stable interface, and it adds a cost to each call
// of jbd2_journal_dirty_metadata. cgroup v2 only.
package witness
