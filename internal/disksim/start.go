package disksim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/procstat"
)

// readyPatience limits the start of a server.
const readyPatience = time.Minute

// startServer starts the process that serves the disk. It inherits the lock,
// and has its own session so that Ctrl-C does not reach it.
func startServer(config Config, h home, lock *lock) (*server, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket pair: %w", err)
	}
	// Non-blocking, so that deadlines apply to it.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "server"), os.NewFile(uintptr(ends[1]), "creator")
	defer func() { _ = theirs.Close() }()
	logFile, err := os.OpenFile(h.path(config.Name, logSuffix), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer func() { _ = logFile.Close() }()

	command := exec.Command(config.Executable)
	command.Args = []string{"daybook-disk", config.Name, string(h)}
	command.Dir = "/"
	command.Env = append(os.Environ(), serveVariable+"="+workServe)
	command.Stderr = logFile
	command.ExtraFiles = []*os.File{theirs, lock.file} // conversationFD, lockFD
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the disk's server: %w", err), ours.Close())
	}
	s := &server{
		conversation: ours,
		lines:        bufio.NewReader(ours),
		pid:          command.Process.Pid,
		exited:       make(chan struct{}),
	}
	go func() {
		_ = command.Wait()
		close(s.exited)
	}()
	// An error here appears in the conversation: the server is dead.
	process, _ := procstat.Read(s.pid)
	s.start = process.StartTicks
	return s, nil
}

// assign sends the server its disk and waits until it serves it.
func (s *server) assign(ctx context.Context, task assignment) error {
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conversation.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := s.conversation.SetDeadline(time.Now().Add(readyPatience)); err != nil {
		return err
	}
	_, err = s.conversation.Write(append(text, '\n'))
	var line []byte
	if err == nil {
		line, err = s.lines.ReadBytes('\n')
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the disk's server (process %d) did not answer within %v", s.pid, readyPatience)
	case err != nil:
		return fmt.Errorf("the disk's server (process %d) died at once: does the program call disksim.ServeIfAsked first? %w", s.pid, err)
	}
	var reply answer
	if err := json.Unmarshal(line, &reply); err != nil {
		return fmt.Errorf("the disk's server answers %q: does the program call disksim.ServeIfAsked first?", line)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
}

// keep makes the server continue without its creator.
func (s *server) keep() error {
	_ = s.conversation.SetDeadline(time.Now().Add(readyPatience))
	if _, err := s.conversation.WriteString(keepWord + "\n"); err != nil {
		return fmt.Errorf("the disk's server (process %d) died: %w", s.pid, err)
	}
	s.leave()
	return nil
}

// signalProcess signals the process with that number and start, and no other
// that got the number later. os.ErrProcessDone if it is gone.
func signalProcess(pid int, start uint64, signal unix.Signal) error {
	fd, err := openProcess(pid, start)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	err = unix.PidfdSendSignal(fd, signal, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// awaitExit waits shortly for a process that has released all its resources and
// is about to end.
func awaitExit(pid int, start uint64) {
	fd, err := openProcess(pid, start)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	const patience = 5 * time.Second
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(ready, int(patience.Milliseconds())); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// openProcess returns a pidfd of the process with that number and start;
// os.ErrProcessDone if it is gone.
func openProcess(pid int, start uint64) (int, error) {
	if pid <= 1 {
		return -1, os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, os.ErrProcessDone
	}
	if err != nil {
		return -1, fmt.Errorf("cannot open process %d: %w", pid, err)
	}
	if now, err := procstat.Read(pid); err != nil || now.StartTicks != start {
		_ = unix.Close(fd)
		return -1, os.ErrProcessDone
	}
	return fd, nil
}
