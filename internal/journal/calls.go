package journal

import "math"

// Call is how often a cgroup made one kind of call that changes metadata.
type Call struct {
	// Cgroup is the kernfs id of the caller's cgroup.
	Cgroup uint64
	// Dev is the changed file system, as a kernel dev_t.
	Dev uint32
	// Operation is one of Operations.
	Operation string
	Count     uint64
}

// The counted operations, each with its system calls.
const (
	OperationMkdir     = "mkdir"
	OperationCreat     = "creat" // also open, openat, openat2 if they made the file
	OperationMknod     = "mknod"
	OperationTruncate  = "truncate" // also ftruncate, and opens with O_TRUNC of a file that was there
	OperationUnlink    = "unlink"
	OperationWrite     = "write" // also pwrite, writev, sendfile, splice, copy_file_range; on regular files
	OperationRmdir     = "rmdir" // also unlinkat with AT_REMOVEDIR
	OperationRename    = "rename"
	OperationLink      = "link"
	OperationSymlink   = "symlink"
	OperationSetxattr  = "setxattr" // also removexattr
	OperationChmod     = "chmod"    // also chown and utime: each changes an inode and nothing else
	OperationFallocate = "fallocate"
)

// operations are in the order of enum operation in bpf/syscalls.bpf.c, which
// starts with 1; the first seven are those of Table 1 of paper 1.
var operations = [...]string{
	OperationMkdir, OperationCreat, OperationMknod, OperationTruncate, OperationUnlink, OperationWrite, OperationRmdir,
	OperationRename, OperationLink, OperationSymlink, OperationSetxattr, OperationChmod, OperationFallocate,
}

// Operations lists the counted operations: first the seven of Table 1 of paper
// 1, in its order.
func Operations() []string { return append([]string(nil), operations[:]...) }

// Costs are journal bytes per call, by operation; `daybook calibrate`
// measures them. An operation without a cost costs nothing.
type Costs map[string]float64

// Estimate charges each call its cost (paper 1, section 3.2). Unlike the
// handles estimator it does not know what was really logged: calls that change
// the same block before it is committed are charged separately, and blocks that
// were logged twice are charged once.
func Estimate(calls []Call, costs Costs) Charges {
	type account struct {
		dev    uint32
		cgroup uint64
	}
	sums := make(map[account]float64)
	for _, call := range calls {
		// Whatever the file with the costs contains: no NaN, no negative cost.
		if cost := costs[call.Operation]; cost > 0 {
			sums[account{call.Dev, call.Cgroup}] += cost * float64(call.Count)
		}
	}
	charges := make(Charges)
	for who, bytes := range sums {
		charges.add(who.dev, who.cgroup, uint64(math.Round(min(bytes, maxEstimateBytes))))
	}
	return charges
}

// maxEstimateBytes is more than a disk writes in its lifetime, and small enough
// to add thousands of such values.
const maxEstimateBytes = 1 << 50
