package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/program"
)

// emulator is a running QEMU. It cannot outlive this process.
type emulator struct{ *program.Process }

// spawn starts QEMU for a platform with the inherited files open from descriptor 3 on. The error
// is a MissingError if QEMU is not installed.
func spawn(platform platform, args []string, inherited []*os.File) (*emulator, error) {
	p, err := program.Start(program.Command{Path: platform.program, Args: args, Inherited: inherited})
	if errors.Is(err, exec.ErrNotFound) {
		return nil, MissingError{platform.program, platform.debian}
	}
	if err != nil {
		return nil, err
	}
	return &emulator{p}, nil
}

// pause stops all threads of QEMU, and returns when they have stopped; resume
// continues them.
func (e *emulator) pause() (resume func(), err error) {
	if err := e.Signal(syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("cannot stop QEMU: %w", err)
	}
	// A process counts as stopped when its last thread has stopped. WNOWAIT leaves
	// the end of the process to its waiter.
	for {
		err := unix.Waitid(unix.P_PID, e.PID(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			_ = e.Signal(syscall.SIGCONT)
			return nil, fmt.Errorf("cannot stop QEMU: %w", err)
		}
	}
	return func() { _ = e.Signal(syscall.SIGCONT) }, nil
}
