package kernels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// tools runs Debian's tools.
type tools struct {
	// held is the locked file of the cache, nil if nothing is locked. Programs
	// inherit it, so that the lock is held until the last of them has ended,
	// also those that a program started and that outlive us both.
	held *os.File
}

// output runs a program in a directory and gives its standard output. The
// error says what the program said. It dies with this process.
func (t tools) output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := t.run(cmd)
	if err == nil {
		return stdout.String(), nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("cannot run %s: it is not on the PATH; scripts/setup vm installs what is missing", program)
	}
	said := strings.TrimSpace(stderr.String())
	if said == "" {
		said = strings.TrimSpace(stdout.String())
	}
	return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, lastLines(said, 5))
}

// run runs a command to its end.
func (t tools) run(cmd *exec.Cmd) error {
	if t.held != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, t.held)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error)
	go func() {
		// The signal comes when the thread that started the program ends, so
		// the thread is kept until then, and given to nobody else.
		runtime.LockOSThread()
		ended <- cmd.Run()
	}()
	return <-ended
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
