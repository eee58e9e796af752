// Package calibrate measures the journal bytes of a call on one ext4 file
// system, as Table 1 of paper 1 was measured (section 3.2): a number of calls
// on as many different files, the bytes that reach the journal, several runs,
// mean and standard deviation. The syscalls estimator of package journal uses
// the result ([Table.Costs]).
//
// The journal probe measures the bytes on the mounted file system itself; no
// separate journal device is needed. The work is done in a private directory,
// which is removed. If another cgroup dirtied blocks meanwhile, the run is
// repeated. Other processes in the caller's own cgroup cannot be distinguished,
// so the file system should be idle.
package calibrate
