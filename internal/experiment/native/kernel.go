package native

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// line is a line of the output: a value that the case has written, or the end of the case.
type line struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
	Done  bool            `json:"done,omitempty"`
}

// Release is the kernel's release, as uname -r prints it.
func (k Kernel) Release() (string, error) {
	release, err := os.ReadFile(filepath.Join(k.Objects, "include/config/kernel.release"))
	if err != nil {
		return "", fmt.Errorf("the native kernel is not built: %w", err)
	}
	return strings.TrimSpace(string(release)), nil
}

// Run starts a kernel and waits until it has run a case, which [Init] gets as JSON. Each value that
// the case writes is passed to got.
func (k Kernel) Run(ctx context.Context, m Machine, c any, got func(value []byte) error) (err error) {
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
	output, err := os.OpenFile(filepath.Join(directory, outputFile), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	process, err := program.Start(program.Command{Path: filepath.Join(k.Objects, "linux"), Args: k.arguments(m, directory)})
	if err != nil {
		return err
	}
	var rest []byte
	var last line
	read := func() error {
		more, err := readMore(output)
		rest = append(rest, more...)
		for err == nil {
			text, after, found := bytes.Cut(rest, []byte("\n"))
			if !found {
				break
			}
			rest, last = after, line{}
			if err = json.Unmarshal(text, &last); err == nil && last.Value != nil {
				err = got(last.Value)
			}
		}
		return err
	}
	for running := true; running && err == nil; {
		select {
		case <-process.Ended():
			running = false
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(outputPeriod):
		}
		err = errors.Join(err, read())
	}
	if err != nil {
		process.Kill()
		_, _ = process.Wait(context.Background())
		return err
	}
	said, ended := process.Wait(ctx)
	switch {
	case last.Error != "":
		return fmt.Errorf("in User Mode Linux: %s; its console: %s", last.Error, program.Excerpt(said))
	case !last.Done:
		return fmt.Errorf("the native kernel ended before its case: %w; its console: %s", errors.Join(ended, errors.New("no result")), program.Excerpt(said))
	}
	return nil
}

func readMore(file *os.File) ([]byte, error) {
	var all []byte
	buffer := make([]byte, 64<<10)
	for {
		n, err := file.Read(buffer)
		all = append(all, buffer[:n]...)
		if n == 0 || err != nil {
			return all, nil
		}
	}
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
