package program

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is the program to start, and how.
type Command struct {
	// Path is the program, by name or path. Args do not include its name.
	Path string
	Args []string
	// IfMissing is the advice in the error if the program is missing, such as
	// "install e2fsprogs"; "" names no package.
	IfMissing string
	// Environment is added to the environment of this process, as "NAME=value".
	Environment []string
	// Directory is the working directory; "" is that of this process.
	Directory string
	// Cgroup is the directory of the cgroup to start in, v1 or v2; "" is that
	// of this process.
	Cgroup string
	// User is the user to run as; nil is that of this process. Another one
	// needs root.
	User *User
	// Input is its standard input; nil is /dev/null.
	Input io.Reader
	// Output receives its standard output, and Errors its standard error; nil keeps
	// the last MiB of both together ([Process.Wait]).
	Output, Errors io.Writer
	// Inherited files stay open in the program and its children, from descriptor 3
	// on. A flock(2) on one is held until all of them have ended.
	Inherited []*os.File
	// OwnMounts starts it in a mount namespace of its own (needs root): no other process
	// sees what it mounts, and the mounts end with it and its children, however they die.
	// The namespace has no copies of the mounts of loop devices, which would keep these
	// devices in use, except of those that contain the program's directory or arguments.
	OwnMounts bool
	// Completes means that nothing ends the program before its own end: neither the
	// context, nor the death of this process. It is for programs that leave damage if
	// they are killed.
	Completes bool
	// DeathSignal is the signal to the program when this process dies; 0 means
	// SIGKILL, which is also used with a User.
	DeathSignal syscall.Signal
}

// User is a user and group of the host by number.
type User struct{ UID, GID int }

// Nobody is the unprivileged account of servers that refuse to run as root.
var Nobody = User{UID: 65534, GID: 65534}

// Process is a started program.
type Process struct {
	name      string
	pid       int
	completes bool
	output    tail
	ended     chan struct{}
	err       error // after ended
}

// enter moves its shell into the cgroup and executes the program, which was
// therefore never in another one. Since sh is its own process, $$ is correct.
const enter = `echo $$ >"$0"/cgroup.procs && exec "$@"`

// dropCopies unmounts, in its own mount namespace, the loop devices that contain none of the
// directories in use, and executes the program.
const dropCopies = `used=" $(stat -c %Hd:%Ld -- / /usr /etc /var /tmp "$PWD" "${HOME:-/}" "${TMPDIR:-/tmp}" "$@" 2>/dev/null | tr '\n' ' ') "
for loop in /sys/block/loop*/loop; do
	loop=${loop%/loop}
	case $used in
	*" $(cat "$loop/dev" 2>/dev/null) "*) ;;
	*) umount -A -l "/dev/${loop##*/}" 2>/dev/null ;;
	esac
done
exec "$@"`

// arguments returns the whole command line.
func (c Command) arguments() ([]string, error) {
	path, err := exec.LookPath(c.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot find the program %s: %w; %s", c.Path, err, cmp.Or(c.IfMissing, "install the package that has it"))
	}
	args := append([]string{path}, c.Args...)
	if c.User != nil {
		// The kernel clears the parent death signal when the user changes;
		// setpriv sets it again.
		args = append([]string{
			"setpriv", "--reuid=" + strconv.Itoa(c.User.UID), "--regid=" + strconv.Itoa(c.User.GID),
			"--clear-groups", "--pdeathsig", "KILL",
		}, args...)
	}
	if c.OwnMounts {
		args = append([]string{"/bin/sh", "-c", dropCopies, "sh"}, args...)
	}
	if c.Cgroup != "" {
		if _, err := os.Stat(filepath.Join(c.Cgroup, "cgroup.procs")); err != nil {
			return nil, fmt.Errorf("cannot start %s in the cgroup %s: %w", c.Path, c.Cgroup, err)
		}
		args = append([]string{"/bin/sh", "-c", enter, c.Cgroup}, args...)
	}
	return args, nil
}

// Start starts the program and returns at once.
func Start(c Command) (*Process, error) {
	args, err := c.arguments()
	if err != nil {
		return nil, err
	}
	p := &Process{name: filepath.Base(c.Path), completes: c.Completes, ended: make(chan struct{})}
	command := exec.Command(args[0], args[1:]...)
	command.Dir = c.Directory
	command.Env = append(os.Environ(), c.Environment...)
	command.Stdin, command.Stdout, command.Stderr = c.Input, &p.output, &p.output
	if c.Output != nil {
		command.Stdout = c.Output
	}
	if c.Errors != nil {
		command.Stderr = c.Errors
	}
	command.ExtraFiles = c.Inherited
	// The program is not in the process group of the terminal: Ctrl-C is for
	// this process, which ends the program.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: cmp.Or(c.DeathSignal, syscall.SIGKILL)}
	if c.Completes {
		command.SysProcAttr.Pdeathsig = 0
	}
	if c.OwnMounts {
		// Package syscall also makes all mounts of the namespace private.
		command.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	command.WaitDelay = outputPatience
	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that started the program
		// ends, so the thread must live as long as the program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		if err == nil {
			p.pid = command.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = command.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", p.name, err)
	}
	return p, nil
}

// Run starts the program, waits until it ends and returns its output. The
// program ends with the context, unless it Completes.
func Run(ctx context.Context, c Command) (output string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	p, err := Start(c)
	if err != nil {
		return "", err
	}
	return p.Wait(ctx)
}

// Output is like [Run], but returns only the standard output, completely and at most
// outputBytes; standard error is used only in the error.
func Output(ctx context.Context, c Command) (string, error) {
	var output whole
	c.Output = &output
	if _, err := Run(ctx, c); err != nil {
		return output.text.String(), err
	}
	if output.over {
		return "", fmt.Errorf("%s wrote more than %d bytes", c.Path, outputBytes)
	}
	return output.text.String(), nil
}

// outputBytes limits the result of [Output].
const outputBytes = 64 << 20

// whole keeps all output up to outputBytes.
type whole struct {
	text bytes.Buffer
	over bool
}

// Write never fails.
func (w *whole) Write(b []byte) (int, error) {
	if w.over = w.over || w.text.Len()+len(b) > outputBytes; !w.over {
		w.text.Write(b)
	}
	return len(b), nil
}

// outputPatience is how long a descendant may keep the output open after the
// program has ended.
const outputPatience = 5 * time.Second

// PID returns its process ID, which is also its process group.
func (p *Process) PID() int { return p.pid }

// Ended returns a channel that is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits until the program ends and returns its output. When the context
// ends, the whole process group is killed, unless the program Completes.
func (p *Process) Wait(ctx context.Context) (output string, err error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		if !p.completes {
			p.Kill()
			return p.output.String(), ctx.Err()
		}
		<-p.ended
	}
	if p.err != nil {
		return p.output.String(), fmt.Errorf("%s failed: %w: %s", p.name, p.err, p.Said())
	}
	return p.output.String(), nil
}

// Said returns the end of its output, for error messages.
func (p *Process) Said() string { return Excerpt(p.output.String()) }

// Excerpt returns the end of a program's output, for error messages.
func Excerpt(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > saidBytes {
		text = "… " + text[len(text)-saidBytes:]
	}
	return text
}

// saidBytes limits the quoted output in an error message.
const saidBytes = 800

// Stop sends a signal that asks the program to end, and waits for patience. If
// the program has not ended by then, its process group is killed, which is an
// error. Stop ignores the exit status: see Wait.
func (p *Process) Stop(signal syscall.Signal, patience time.Duration) error {
	if p.hasEnded() {
		return nil
	}
	// The program may end just now; ESRCH is the wanted state.
	if err := unix.Kill(p.pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("cannot stop %s (process %d): %w", p.name, p.pid, err)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.ended:
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s (process %d) did not end within %v and was killed: %s", p.name, p.pid, patience, p.Said())
	}
}

// Signal sends a signal to the program, without its group. The error is
// os.ErrProcessDone if the program has ended.
func (p *Process) Signal(signal syscall.Signal) error {
	if p.hasEnded() {
		return os.ErrProcessDone
	}
	return unix.Kill(p.pid, signal)
}

// Kill kills the process group at once and waits for the program.
func (p *Process) Kill() {
	if !p.hasEnded() {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	<-p.ended
}

func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// tail keeps the last tailBytes of what was written.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailBytes = 1 << 20

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(b)
	if over := t.text.Len() - tailBytes; over > 0 {
		t.text.Next(over)
	}
	return len(b), nil
}

// String returns the kept output.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
