package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Child is a load in its own process and cgroup.
type Child struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  bytes.Buffer
	errors  bytes.Buffer
}

// Start starts the load's process and puts it into the cgroup directory, where
// it waits for Go. The process dies with its parent.
func Start(spec Spec, cgroupDirectory string) (*Child, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	c := &Child{command: exec.Command("/proc/self/exe")}
	c.command.Env = append(os.Environ(), environment+"="+string(text))
	c.command.Stdout, c.command.Stderr = &c.output, &c.errors
	// The child is not in the process group of the terminal: Ctrl-C is for the
	// parent, which ends the load.
	c.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.input, err = c.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a load: %w", err)
	}
	procs := filepath.Join(cgroupDirectory, "cgroup.procs")
	if err := os.WriteFile(procs, []byte(strconv.Itoa(c.command.Process.Pid)), 0); err != nil {
		_, _ = c.Stop()
		return nil, fmt.Errorf("cannot put a load into its cgroup: %w", err)
	}
	return c, nil
}

// Go starts the load.
func (c *Child) Go() error {
	if _, err := c.input.Write([]byte("go\n")); err != nil {
		return fmt.Errorf("the load ended before it started: %s", c.errors.String())
	}
	return nil
}

// Stop ends the load, waits for its process and returns its result.
func (c *Child) Stop() (Result, error) {
	_ = c.input.Close()
	return c.end()
}

// Wait waits for a load that ends by itself, because it has only jobs, and
// returns its result. The load is stopped if the context ends first.
func (c *Child) Wait(ctx context.Context) (Result, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.input.Close() })
	defer stop()
	result, err := c.end()
	return result, errors.Join(ctx.Err(), err)
}

func (c *Child) end() (Result, error) {
	if err := c.command.Wait(); err != nil {
		return Result{}, fmt.Errorf("the load failed: %w: %s", err, bytes.TrimSpace(c.errors.Bytes()))
	}
	var result Result
	if c.output.Len() == 0 {
		return result, nil // it never started
	}
	if err := json.Unmarshal(c.output.Bytes(), &result); err != nil {
		return Result{}, fmt.Errorf("cannot read the result of the load: %w", err)
	}
	return result, nil
}
