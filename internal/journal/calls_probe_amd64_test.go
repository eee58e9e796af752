package journal_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/ext4test"
	"github.com/daybook-project/daybook/internal/journal"
)

// Newer architectures do not have these calls, and therefore the standard
// library does not make them.
func TestOldCallsAreCountedUnderTheSameNames(t *testing.T) {
	fs := ext4test.New(t, ext4test.Options{})
	old := func(number uintptr, name string, second uintptr) uintptr {
		path, err := unix.BytePtrFromString(fs.Dir + "/" + name)
		must(err)
		result, _, errno := unix.Syscall(number, uintptr(unsafe.Pointer(path)), second, 0o600)
		if errno != 0 {
			t.Errorf("system call %d on %s: %v", number, name, errno)
		}
		return result
	}
	counts := countedIn(t, func() {
		mustClose(int(old(unix.SYS_CREAT, "file", 0o600)))
		mustClose(int(old(unix.SYS_CREAT, "file", 0o600))) // makes it empty again
		mustClose(int(old(unix.SYS_OPEN, "file2", unix.O_CREAT|unix.O_WRONLY)))
		mustClose(int(old(unix.SYS_OPEN, "file2", unix.O_RDONLY)))
		old(unix.SYS_MKDIR, "dir", 0o700)
		old(unix.SYS_MKNOD, "fifo", unix.S_IFIFO|0o600)
		old(unix.SYS_CHMOD, "file", 0o640)
		old(unix.SYS_RMDIR, "dir", 0)
		old(unix.SYS_UNLINK, "fifo", 0)
	})
	wantCounts(t, counts[fs.Dev()], map[string]uint64{
		journal.OperationCreat: 2, journal.OperationTruncate: 1, journal.OperationMkdir: 1,
		journal.OperationMknod: 1, journal.OperationChmod: 1, journal.OperationRmdir: 1,
		journal.OperationUnlink: 1,
	})
}
