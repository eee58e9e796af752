package causes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The calls that an actor can make.
const (
	// ModeFsync changes the mode of a file and then measures an fsync: it has no
	// data of its own.
	ModeFsync = "mode+fsync"
	// AppendFsync appends 4 KiB and then measures an fsync.
	AppendFsync = "append+fsync"
	// AppendFdatasync is the same with fdatasync.
	AppendFdatasync = "append+fdatasync"
	// AppendMsync changes a page of a mapped file and then measures an msync.
	AppendMsync = "map+msync"
	// WriteSync measures writes of 4 KiB to a file with O_SYNC.
	WriteSync = "write O_SYNC"
	// Data writes a new file of Bytes and starts its writeback.
	Data = "data"
	// Mkdir makes directories.
	Mkdir = "mkdir"
	// Fragment makes a file with Count extents.
	Fragment = "fragment"
	// Truncate truncates the file of Fragment.
	Truncate = "truncate"
)

// order is one request to an actor.
type order struct {
	Do    string `json:"do"`
	Path  string `json:"path"`
	Count int    `json:"count"`
	Bytes int64  `json:"bytes"`
	// PauseSeconds is ahead of each call of Mkdir.
	PauseSeconds float64 `json:"pause_seconds"`
}

// answer has the seconds of each measured call.
type answer struct {
	Seconds []float64 `json:"seconds"`
	Error   string    `json:"error"`
}

// actor is a process in a cgroup that does what it is told.
type actor struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

const environment = "DAYBOOK_CAUSES_ACTOR"

// RunIfAsked makes this process an actor if its environment requests it, and then
// never returns. main and TestMain of programs that use Run call it first.
func RunIfAsked() {
	if os.Getenv(environment) == "" {
		return
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "actor:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		var a answer
		seconds, err := o.follow()
		if a.Seconds = seconds; err != nil {
			a.Error = err.Error()
		}
		if err := json.NewEncoder(out).Encode(a); err != nil {
			return err
		}
	}
	return lines.Err()
}

// startActor starts an actor in a cgroup. It dies with its parent.
func startActor(cgroupDirectory string) (*actor, error) {
	a := &actor{command: exec.Command("/proc/self/exe")}
	a.command.Env = append(os.Environ(), environment+"=1")
	a.command.Stderr = os.Stderr
	a.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := a.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if a.in, err = a.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := a.command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start an actor: %w", err)
	}
	a.out = json.NewDecoder(out)
	procs := filepath.Join(cgroupDirectory, "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(a.command.Process.Pid)), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot put an actor into its cgroup: %w", err), a.stop())
	}
	return a, nil
}

// begin gives an order; the function that it returns waits for the answer.
func (a *actor) begin(o order) (wait func() ([]float64, error), err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	if _, err := a.in.Write(append(text, '\n')); err != nil {
		return nil, fmt.Errorf("cannot give an order to an actor: %w", err)
	}
	return func() ([]float64, error) {
		var got answer
		if err := a.out.Decode(&got); err != nil {
			return nil, fmt.Errorf("no answer from an actor: %w", err)
		}
		if got.Error != "" {
			return nil, fmt.Errorf("%s in %s: %s", o.Do, o.Path, got.Error)
		}
		return got.Seconds, nil
	}, nil
}

func (a *actor) do(o order) ([]float64, error) {
	wait, err := a.begin(o)
	if err != nil {
		return nil, err
	}
	return wait()
}

func (a *actor) stop() error {
	return errors.Join(a.in.Close(), a.command.Wait())
}

// times measures each of count calls; before runs ahead of each, unmeasured.
func times(count int, before, call func(n int) error) ([]float64, error) {
	seconds := make([]float64, 0, count)
	for n := range count {
		if err := before(n); err != nil {
			return nil, err
		}
		begin := monotonic()
		if err := call(n); err != nil {
			return nil, err
		}
		seconds = append(seconds, monotonic()-begin)
	}
	return seconds, nil
}

func monotonic() float64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail
	return float64(now.Sec) + float64(now.Nsec)/1e9
}
