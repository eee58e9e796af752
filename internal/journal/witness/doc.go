// Package witness counts the journal's dirtied blocks a second time, by other
// means than the handles estimator of package journal, so that tests can hold
// the one against the other. Its programs (bpf/, GPL-2.0) hang on functions of
// jbd2 and ext4 by fentry and fexit. It is for tests only: not every kernel
// allows that, a function's name is no interface, and it pays for each call of
// jbd2_journal_dirty_metadata. cgroup v2 only.
package witness
