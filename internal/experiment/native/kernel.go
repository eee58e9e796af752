package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/program"
)

// Kernel is a kernel that nvjournal/kernel/native/build has built.
type Kernel struct {
	// Objects and Modules are the directories that the build prints.
	Objects, Modules string
	// Self is this program.
	Self string
}

// Machine says how a kernel is started.
type Machine struct {
	// MemoryBytes is its memory, of which the host gives what is used.
	MemoryBytes int64
	// Parameters are added to the kernel's command line.
	Parameters []string
	// Init are the first arguments of this program as the first process of the kernel. The
	// last argument is a directory, for [Init].
	Init []string
}

// Files in the directory that the kernel is given.
const (
	caseFile   = "case.json"
	outputFile = "output"
)

// outputPeriod is how often the output of the kernel is read. Each time needs a processor
// of the host.
const outputPeriod = 500 * time.Millisecond

// envelope is a line of the output: one that the case has written, or the end of the case.
type envelope[Line any] struct {
	Line  *Line  `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	Done  bool   `json:"done,omitempty"`
}

// Release is the kernel's release, as uname -r prints it.
func (k Kernel) Release() (string, error) {
	release, err := os.ReadFile(filepath.Join(k.Objects, "include/config/kernel.release"))
	if err != nil {
		return "", fmt.Errorf("the native kernel is not built: %w", err)
	}
	return strings.TrimSpace(string(release)), nil
}

// Run starts a kernel and waits until it has run a case, which [Init] gets. Each line that
// the case writes is passed to got.
func Run[Line any](ctx context.Context, k Kernel, m Machine, c any, got func(Line)) (err error) {
	directory, err := program.PrivateDirectory("native")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, caseFile), text, 0o600); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(directory, outputFile), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	process, err := program.Start(program.Command{Path: filepath.Join(k.Objects, "linux"), Args: k.arguments(m, directory)})
	if err != nil {
		return err
	}
	out := output[Line]{file: file, got: got}
	if err := out.follow(ctx, process); err != nil {
		process.Kill()
		_, _ = process.Wait(context.Background())
		return err
	}
	said, ended := process.Wait(ctx)
	switch {
	case out.last.Error != "":
		return fmt.Errorf("in User Mode Linux: %s; its console: %s", out.last.Error, program.Excerpt(said))
	case !out.last.Done:
		return fmt.Errorf("the native kernel ended before its case: %w; its console: %s", errors.Join(ended, errors.New("no result")), program.Excerpt(said))
	}
	return nil
}

// output is the file that a case writes.
type output[Line any] struct {
	file *os.File
	rest []byte // an incomplete line
	last envelope[Line]
	got  func(Line)
}

// follow reads the output until the process has ended.
func (o *output[Line]) follow(ctx context.Context, process *program.Process) (err error) {
	for running := true; running && err == nil; {
		select {
		case <-process.Ended():
			running = false
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(outputPeriod):
		}
		err = errors.Join(err, o.read())
	}
	return err
}

// read passes on what was added to the file.
func (o *output[Line]) read() error {
	more, err := io.ReadAll(o.file)
	o.rest = append(o.rest, more...)
	for err == nil {
		text, after, found := bytes.Cut(o.rest, []byte("\n"))
		if !found {
			break
		}
		o.rest, o.last = after, envelope[Line]{}
		if err = json.Unmarshal(text, &o.last); err == nil && o.last.Line != nil {
			o.got(*o.last.Line)
		}
	}
	return err
}

// arguments returns the kernel's command line. Its root is that of the host, read-only.
func (k Kernel) arguments(m Machine, directory string) []string {
	args := []string{
		"mem=" + strconv.FormatInt(m.MemoryBytes>>20, 10) + "M", "ncpus=" + strconv.Itoa(runtime.NumCPU()), "seccomp=on",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=fd:0,fd:1", "quiet", "nohlt",
	}
	args = append(args, m.Parameters...)
	args = append(args, "init="+k.Self, "--")
	return append(append(args, m.Init...), directory)
}
