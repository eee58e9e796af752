package fio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/daybook-project/daybook/internal/program"
)

// Run is a running job.
type Run struct {
	process *program.Process
	private string // directory with fio's output
}

// Load is what fio can be started with: a [Job] or a [Stream].
type Load interface {
	Check() error
	// arguments are fio's, for writing its JSON to a file.
	arguments(output string) []string
	// inherited are the open files that fio works on.
	inherited() []*os.File
}

// Available returns an error with advice if fio is missing.
func Available() error {
	if _, err := exec.LookPath("fio"); err != nil {
		return fmt.Errorf("cannot find fio: %w; install fio", err)
	}
	return nil
}

// Start starts a load in the cgroup directory ("": ours). It ends with its time,
// with Stop, or with this process.
func Start(job Load, cgroupDirectory string) (*Run, error) {
	if err := job.Check(); err != nil {
		return nil, fmt.Errorf("cannot run fio: %w", err)
	}
	private, err := program.PrivateDirectory("fio")
	if err != nil {
		return nil, err
	}
	r := &Run{private: private}
	r.process, err = program.Start(program.Command{
		Path: "fio", Args: job.arguments(r.output()), Cgroup: cgroupDirectory, Directory: private, Inherited: job.inherited(),
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(private))
	}
	return r, nil
}

func (r *Run) output() string { return filepath.Join(r.private, "result.json") }

// Wait waits until the job has ended and returns its result. When the context
// ends, fio is killed.
func (r *Run) Wait(ctx context.Context) (Result, error) {
	defer os.RemoveAll(r.private)
	if _, err := r.process.Wait(ctx); err != nil {
		return Result{}, err
	}
	return r.result()
}

// stopPatience is how long the writers may take to finish their last sync.
const stopPatience = 60 * time.Second

// Stop ends the job early and returns its result; a second call does nothing.
func (r *Run) Stop() (Result, error) {
	defer os.RemoveAll(r.private)
	// On SIGINT fio ends its writers, writes its JSON, and exits with 128.
	if err := r.process.Stop(syscall.SIGINT, stopPatience); err != nil {
		return Result{}, err
	}
	if _, err := os.Stat(r.private); err != nil {
		return Result{}, nil // stopped before
	}
	return r.result()
}

// maxOutputBytes limits fio's JSON of one group, which has about 10 KiB.
const maxOutputBytes = 4 << 20

func (r *Run) result() (Result, error) {
	info, err := os.Stat(r.output())
	if err != nil {
		return Result{}, fmt.Errorf("fio wrote no result: %w: %s", err, r.process.Said())
	}
	if info.Size() > maxOutputBytes {
		return Result{}, fmt.Errorf("fio's result has %d bytes; want at most %d", info.Size(), maxOutputBytes)
	}
	text, err := os.ReadFile(r.output())
	if err != nil {
		return Result{}, err
	}
	result, err := Parse(text)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, r.process.Said())
	}
	return result, err
}
