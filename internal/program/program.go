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

// Command says what to start.
type Command struct {
	// Path is the program, by name or path; Args are without its name.
	Path string
	Args []string
	// IfMissing says in the error what to do where there is no such program, such as
	// "install e2fsprogs"; "" names no package.
	IfMissing string
	// Environment is added to ours, as "NAME=value".
	Environment []string
	// Directory it works in; "" is ours.
	Directory string
	// Cgroup is the directory of the cgroup to start in, v1 or v2; "" is ours.
	Cgroup string
	// User is who it runs as; nil is us. Another one needs root.
	User *User
	// Input is its standard input; nil is /dev/null.
	Input io.Reader
	// Output gets its standard output, and Errors its standard error; nil keeps the
	// last MiB of both together ([Process.Wait]).
	Output, Errors io.Writer
	// Inherited files stay open in it and in what it starts, from descriptor 3 on: an
	// flock(2) of one is held until all have ended.
	Inherited []*os.File
	// DeathSignal is what it gets when this process dies; 0 is SIGKILL, as is any with
	// a User.
	DeathSignal syscall.Signal
}

// User is an account of the host by number.
type User struct{ UID, GID int }

// Nobody is the account that owns nothing: servers that refuse root run as it.
var Nobody = User{UID: 65534, GID: 65534}

// Process is a program that was started.
type Process struct {
	name   string
	pid    int
	output tail
	ended  chan struct{}
	err    error // after ended
}

// enter puts the shell that it runs in into the cgroup and becomes the program,
// which so never was elsewhere. Since sh is its own process, $$ is right.
const enter = `echo $$ >"$0"/cgroup.procs && exec "$@"`

// arguments is the whole command line.
func (c Command) arguments() ([]string, error) {
	path, err := exec.LookPath(c.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot find the program %s: %w; %s", c.Path, err, cmp.Or(c.IfMissing, "install the package that has it"))
	}
	args := append([]string{path}, c.Args...)
	if c.User != nil {
		// The kernel forgets the parent's death signal when the user
		// changes; setpriv asks for it again.
		args = append([]string{
			"setpriv", "--reuid=" + strconv.Itoa(c.User.UID), "--regid=" + strconv.Itoa(c.User.GID),
			"--clear-groups", "--pdeathsig", "KILL",
		}, args...)
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
	p := &Process{name: filepath.Base(c.Path), ended: make(chan struct{})}
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
	// Not in the terminal's process group: its Ctrl-C is for us, who end the
	// program in order.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: cmp.Or(c.DeathSignal, syscall.SIGKILL)}
	command.WaitDelay = outputPatience
	started := make(chan error)
	go func() {
		// The death signal is of the thread that started the program, so the
		// thread lives as long.
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

// Run starts the program, waits for its end and returns what it wrote. When the
// context ends, so does the program.
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

// Output is [Run], but returns the whole standard output alone, of at most outputBytes;
// standard error is only for the error.
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

// outputBytes bounds what [Output] returns.
const outputBytes = 64 << 20

// whole keeps all that was written, if it is not too much.
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

// outputPatience is how long a descendant may hold the output open after the
// program has ended.
const outputPatience = 5 * time.Second

// PID is its process, and its process group.
func (p *Process) PID() int { return p.pid }

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Wait waits for the program's end and returns what it wrote. When the context
// ends, the whole process group is killed.
func (p *Process) Wait(ctx context.Context) (output string, err error) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
		return p.output.String(), ctx.Err()
	}
	if p.err != nil {
		return p.output.String(), fmt.Errorf("%s failed: %w: %s", p.name, p.err, p.Said())
	}
	return p.output.String(), nil
}

// Said is the end of what it wrote, for error messages.
func (p *Process) Said() string { return Excerpt(p.output.String()) }

// Excerpt is the end of a text that a program wrote, for error messages.
func Excerpt(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > saidBytes {
		text = "… " + text[len(text)-saidBytes:]
	}
	return text
}

// saidBytes bounds what an error message quotes.
const saidBytes = 800

// Stop asks the program by a signal to end, waits as long as patience, and kills
// its process group if it has not ended by then, which is an error. How it
// ended is not looked at: see Wait.
func (p *Process) Stop(signal syscall.Signal, patience time.Duration) error {
	if p.hasEnded() {
		return nil
	}
	// It may end just now; ESRCH is what we wanted.
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

// Kill ends the process group at once and waits for the program.
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

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
