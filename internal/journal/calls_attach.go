package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// countedCalls maps the entry of each system call to its program of
// bpf/syscalls.bpf.c. An architecture has only some of them: arm64 has no
// mkdir, only mkdirat.
var countedCalls = []struct {
	program string
	calls   []string
}{
	{"enter_mkdir", []string{"mkdir", "mkdirat"}},
	{"enter_creat", []string{"creat"}},
	{"enter_open", []string{"open"}},
	{"enter_openat", []string{"openat"}},
	{"enter_openat2", []string{"openat2"}},
	{"enter_mknod", []string{"mknod", "mknodat"}},
	{"enter_truncate", []string{"truncate", "truncate64", "ftruncate", "ftruncate64"}},
	{"enter_unlink", []string{"unlink"}},
	{"enter_unlinkat", []string{"unlinkat"}},
	{"enter_rmdir", []string{"rmdir"}},
	{"enter_write", []string{"write", "writev", "pwrite64", "pwritev", "pwritev2", "sendfile", "sendfile64"}},
	{"enter_copy", []string{"copy_file_range", "splice"}},
	{"enter_rename", []string{"rename", "renameat", "renameat2"}},
	{"enter_link", []string{"link", "linkat"}},
	{"enter_symlink", []string{"symlink", "symlinkat"}},
	{"enter_setxattr", []string{
		"setxattr", "lsetxattr", "fsetxattr", "setxattrat",
		"removexattr", "lremovexattr", "fremovexattr", "removexattrat",
	}},
	{"enter_chmod", []string{
		"chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown", "fchownat",
		"utime", "utimes", "futimesat", "utimensat",
	}},
	{"enter_fallocate", []string{"fallocate"}},
}

// returnProgram is attached to the return of every counted call.
const returnProgram = "call_returns"

// attachCalls attaches the programs to the calls that this kernel has.
func attachCalls(programs map[string]*ebpf.Program) ([]link.Link, error) {
	var links []link.Link
	attach := func(tracepoint, program string) error {
		l, err := link.Tracepoint("syscalls", tracepoint, programs[program], nil)
		if err != nil {
			return fmt.Errorf("%w: cannot attach %s to the tracepoint syscalls:%s: %w",
				ErrUnsupported, program, tracepoint, err)
		}
		links = append(links, l)
		return nil
	}
	for _, counted := range countedCalls {
		for _, call := range counted.calls {
			// Attach to the return first, so that every entry has one.
			err := attach("sys_exit_"+call, returnProgram)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = attach("sys_enter_"+call, counted.program)
			}
			if err != nil {
				return links, err
			}
		}
	}
	if len(links) == 0 {
		return nil, fmt.Errorf("%w: the kernel has no tracepoints of system calls; "+
			"it must be built with CONFIG_FTRACE_SYSCALLS=y", ErrUnsupported)
	}
	return links, nil
}

// traceDirectories are the directories with the kernel's list of tracepoints.
var traceDirectories = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

// findTracepoints fails if the list of tracepoints is not mounted. Attaching to
// the tracepoint of a system call needs the number in that list.
func findTracepoints(directories []string) error {
	for _, directory := range directories {
		if _, err := os.Stat(directory + "/events"); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: the tracepoints of system calls are not visible, because tracefs is not mounted; "+
		"mount it: mount -t tracefs tracefs %s", ErrUnsupported, directories[0])
}
