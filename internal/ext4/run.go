package ext4

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// run runs a tool, which is killed when this process is: nobody else would
// know of it. The lock, if not nil, stays open in it.
func run(ctx context.Context, lock *os.File, name string, arguments []string) (output []byte, err error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if lock != nil {
		command.ExtraFiles = []*os.File{lock}
	}
	// The signal comes with the end of the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return command.CombinedOutput()
}
