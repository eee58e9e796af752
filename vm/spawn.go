package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// emulator is a running QEMU.
type emulator struct {
	process *os.Process
	exited  chan struct{} // closed when it is gone
	stderr  boundedBuffer // read after exited
}

// spawn starts QEMU such that it cannot outlive this process: the kernel kills
// it when the thread that started it dies. That thread is therefore kept, by a
// goroutine that does nothing else, until QEMU is gone.
func spawn(args []string, inherited []*os.File) (*emulator, error) {
	e := &emulator{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		cmd := exec.Command(qemuProgram, args...)
		cmd.Stderr = &e.stderr
		cmd.ExtraFiles = inherited
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Pdeathsig: syscall.SIGKILL,
			Setpgid:   true, // Ctrl-C is for us; we end it
		}
		err := cmd.Start()
		e.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(e.exited)
		}
	}()
	if err := <-started; err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return nil, MissingError{qemuProgram, "qemu-system-x86"}
		}
		return nil, err
	}
	return e, nil
}

// pause stops all of QEMU's threads, and returns when they stand; resume lets
// them go on.
func (e *emulator) pause() (resume func(), err error) {
	if err := e.process.Signal(syscall.SIGSTOP); err != nil {
		return nil, fmt.Errorf("cannot stop QEMU: %w", err)
	}
	// A process counts as stopped when its last thread is. It stays to be
	// waited for, as it is waited for elsewhere when it ends.
	for {
		err := unix.Waitid(unix.P_PID, e.process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			_ = e.process.Signal(syscall.SIGCONT)
			return nil, fmt.Errorf("cannot stop QEMU: %w", err)
		}
	}
	return func() { _ = e.process.Signal(syscall.SIGCONT) }, nil
}

// kill ends QEMU at once, as pulling the plug does, and waits for it.
func (e *emulator) kill() {
	_ = e.process.Kill()
	<-e.exited
}

// said is what QEMU wrote on its standard error.
func (e *emulator) said() string { return strings.TrimSpace(e.stderr.String()) }

// boundedBuffer keeps the beginning of what is written.
type boundedBuffer struct{ bytes.Buffer }

const maxStderrBytes = 64 << 10

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxStderrBytes-b.Len())])
	return len(p), nil
}
