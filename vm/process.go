package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"

	"github.com/daybook-project/daybook/vm/internal/wire"
)

// Command is a command to run in the guest, as root.
type Command struct {
	Args []string // the program, looked up on the guest's PATH, and its arguments
	Env  []string // NAME=VALUE, over the guest's own
	Dir  string   // "": /root
	// Stdout and Stderr receive the output as it arrives; nil discards it. A
	// writer that blocks delays all processes of the guest.
	Stdout, Stderr io.Writer
}

// ExitError means that a command ran, and ended with another status than 0.
type ExitError struct {
	Args   []string
	Code   int            // 127: not found in the guest, 126: cannot be run; 0 if Signal
	Signal syscall.Signal // that killed it, 0 if none
	Reason string         // why it could not be started, "" if it was
	Stderr string         // the end of it, if the caller did not take it
}

func (e *ExitError) Error() string {
	text := fmt.Sprintf("%s: exit status %d", strings.Join(e.Args, " "), e.Code)
	if e.Signal != 0 {
		text = fmt.Sprintf("%s: killed by signal %d (%s)", strings.Join(e.Args, " "), int(e.Signal), e.Signal)
	}
	if e.Reason != "" {
		text = fmt.Sprintf("%s: cannot run in the guest: %s", strings.Join(e.Args, " "), e.Reason)
	}
	if e.Stderr != "" {
		text += ": " + strings.TrimSpace(e.Stderr)
	}
	return text
}

// Status returns the exit status as a shell reports it: 128 plus the signal's number for
// a killed command.
func (e *ExitError) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// Process is a command that runs in the guest.
type Process struct {
	boot    *boot
	id      uint32
	command Command
	done    chan struct{}
	once    sync.Once
	err     error // read after done
}

// Start starts a command. Many can run at once.
func (m *Machine) Start(command Command) (*Process, error) {
	if len(command.Args) == 0 || command.Args[0] == "" {
		return nil, errors.New("no command to run in the guest")
	}
	return m.current().request(command, wire.Request{Args: command.Args, Env: command.Env, Dir: command.Dir})
}

func (b *boot) request(command Command, request wire.Request) (*Process, error) {
	b.mu.Lock()
	if b.processes == nil {
		b.mu.Unlock()
		return nil, b.end()
	}
	b.nextID++
	p := &Process{boot: b, id: b.nextID, command: command, done: make(chan struct{})}
	b.processes[p.id] = p
	b.mu.Unlock()
	if err := b.send(wire.Start, p.id, request); err != nil {
		b.mu.Lock()
		delete(b.processes, p.id)
		b.mu.Unlock()
		select {
		case <-b.gone:
			return nil, b.end()
		default:
			return nil, fmt.Errorf("cannot start %s: %w", command.Args[0], err)
		}
	}
	return p, nil
}

// receive processes a frame of the process.
func (p *Process) receive(frame wire.Frame) {
	switch frame.Kind {
	case wire.Stdout:
		writeTo(p.command.Stdout, frame.Payload)
	case wire.Stderr:
		writeTo(p.command.Stderr, frame.Payload)
	case wire.Exit:
		var result wire.Result
		if err := json.Unmarshal(frame.Payload, &result); err != nil {
			p.finish(err)
			return
		}
		if result == (wire.Result{}) {
			p.finish(nil)
			return
		}
		p.finish(&ExitError{Args: p.command.Args, Code: result.Code, Signal: syscall.Signal(result.Signal), Reason: result.Error})
	}
}

func writeTo(w io.Writer, b []byte) {
	if w != nil {
		_, _ = w.Write(b)
	}
}

func (p *Process) finish(err error) {
	p.once.Do(func() {
		p.err = err
		close(p.done)
	})
}

// Signal sends a signal to the process and its process group.
func (p *Process) Signal(signal syscall.Signal) error {
	return p.boot.send(wire.Signal, p.id, int(signal))
}

// Wait waits for the end of the process. The error is an [*ExitError] if it ran
// and failed, or the reason why the guest is gone ([ErrPanicked] and so on) if
// that happened first. If the context ends first, the process gets SIGKILL.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		_ = p.Signal(syscall.SIGKILL)
		return context.Cause(ctx)
	}
}

// Done is closed when the process has ended, or the guest.
func (p *Process) Done() <-chan struct{} { return p.done }

// Do runs a command to its end; the errors are those of [Process.Wait].
func (m *Machine) Do(ctx context.Context, command Command) error {
	p, err := m.Start(command)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// Run runs a command to its end and returns its standard output. If it fails,
// the [*ExitError] contains the standard error.
func (m *Machine) Run(ctx context.Context, args ...string) (string, error) {
	var stdout bytes.Buffer
	var stderr tailBuffer
	err := m.Do(ctx, Command{Args: args, Stdout: &stdout, Stderr: &stderr})
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Stderr = string(stderr.b)
	}
	if err != nil && ctx.Err() != nil {
		return "", err // stdout may still be written to
	}
	return stdout.String(), err
}

// KillWhen runs a command and kills the guest, like [Machine.Kill], as soon as
// when returns true for a line of the command's standard output. It is an error
// if the command ends first.
func (m *Machine) KillWhen(ctx context.Context, command Command, when func(line string) bool) error {
	b := m.current()
	also := command.Stdout
	watch := &lineWriter{line: func(line string) {
		if when(line) {
			b.killNow()
		}
	}}
	command.Stdout = watch
	if also != nil {
		command.Stdout = io.MultiWriter(watch, also)
	}
	err := m.Do(ctx, command)
	if errors.Is(err, ErrKilled) {
		<-b.gone
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s ended before it printed the line at which the guest was to be killed", strings.Join(command.Args, " "))
	}
	return err
}

// lineWriter calls line with each complete line.
type lineWriter struct {
	rest []byte
	line func(string)
}

const maxLineBytes = 1 << 20

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	for {
		at := bytes.IndexByte(w.rest, '\n')
		if at < 0 {
			break
		}
		w.line(string(w.rest[:at]))
		w.rest = w.rest[at+1:]
	}
	if len(w.rest) > maxLineBytes {
		w.line(string(w.rest))
		w.rest = nil
	}
	return len(b), nil
}

// tailBuffer keeps the end of the output.
type tailBuffer struct{ b []byte }

const maxTailBytes = 4 << 10

func (t *tailBuffer) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if len(t.b) > maxTailBytes {
		t.b = t.b[len(t.b)-maxTailBytes:]
	}
	return len(b), nil
}
