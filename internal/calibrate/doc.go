// Package calibrate measures what a call costs the journal of one ext4 file
// system, as Table 1 of paper 1 was measured (section 3.2): a number of calls
// on as many different files, the bytes that reach the journal, several runs,
// mean and standard deviation. The syscalls estimator of package journal lives
// on the result ([Table.Costs]).
//
// What reached the journal is seen by the journal probe, on the mounted file
// system itself; no journal device is needed. The work is done in a private
// directory that is removed again. Blocks that others log meanwhile are seen
// if another cgroup dirtied them, and the run repeated; others in the caller's
// own cgroup are not told apart, so the file system should be quiet.
package calibrate
