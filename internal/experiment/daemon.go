package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is a running `daybook control`, seen from outside.
type daemon struct {
	command *exec.Cmd
	exited  chan struct{}
	waitErr error
	stderr  bytes.Buffer
	// directory holds its state and configuration.
	directory string
}

const configName = "config.yaml"

// startDaemon runs the program as the daemon of a disk: it steers the
// cgroups that match.
func startDaemon(program, device, match string, interval time.Duration) (d *daemon, err error) {
	d = &daemon{exited: make(chan struct{})}
	if d.directory, err = os.MkdirTemp("", "daybook-experiment-daemon-"); err != nil {
		return nil, err
	}
	config := fmt.Sprintf("interval: %v\ncontainers:\n  - match: %s\n    weight: 100\n", interval, match)
	if err := os.WriteFile(filepath.Join(d.directory, configName), []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(d.directory))
	}
	d.command = exec.Command(program, "control", "--device", device,
		"--config", filepath.Join(d.directory, configName), "--state-dir", filepath.Join(d.directory, "state"))
	d.command.Stderr = &d.stderr
	// It gives the weights back when it is asked to end, and must not
	// outlive us; not with the terminal's Ctrl-C, but after the load.
	d.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the daemon: %w; make build makes it", err), os.RemoveAll(d.directory))
	}
	go func() {
		d.waitErr = d.command.Wait()
		close(d.exited)
	}()
	return d, nil
}

// daemonPatience bounds the waits for the daemon.
const daemonPatience = 30 * time.Second

// stop ends the daemon in order, and by force if it does not.
func (d *daemon) stop() error {
	_ = d.command.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-d.exited:
	case <-time.After(daemonPatience):
		_ = d.command.Process.Kill()
		<-d.exited
		err = fmt.Errorf("the daemon did not end within %v", daemonPatience)
	}
	var exit *exec.ExitError
	if errors.As(d.waitErr, &exit) && exit.ExitCode() == 130 || d.waitErr == nil {
		return errors.Join(err, os.RemoveAll(d.directory))
	}
	return errors.Join(err, d.died(), os.RemoveAll(d.directory))
}

func (d *daemon) died() error {
	return fmt.Errorf("the daemon failed: %w: %s", d.waitErr, lastLines(d.stderr.String(), 5))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// awaitCalm waits until the daemon's programs are attached and it has nothing
// left to do but wait for its interval.
func (d *daemon) awaitCalm(ctx context.Context) error {
	const pause, calm = 100 * time.Millisecond, 2 * time.Millisecond
	deadline := time.Now().Add(daemonPatience)
	for before := time.Duration(0); ; {
		if err := d.pause(ctx, pause, deadline); err != nil {
			return err
		}
		now, err := d.cpuTime()
		if err != nil {
			return err
		}
		if now-before < calm && d.attached() {
			return nil
		}
		before = now
	}
}

func (d *daemon) pause(ctx context.Context, pause time.Duration, deadline time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.exited:
		return d.died()
	case <-time.After(pause):
	}
	if time.Now().After(deadline) {
		return fmt.Errorf("the daemon was not ready within %v", daemonPatience)
	}
	return nil
}

// attached: the daemon holds links of BPF programs.
func (d *daemon) attached() bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", d.command.Process.Pid))
	if err != nil {
		return false
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.Contains(target, "bpf_link") {
			return true
		}
	}
	return false
}

// cpuTime is the processor time that the daemon has used, to the nanosecond.
func (d *daemon) cpuTime() (time.Duration, error) {
	// MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of include/linux/posix-timers.h
	clock := int32(^uint32(d.command.Process.Pid)<<3 | 2)
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return 0, fmt.Errorf("cannot read the daemon's processor time: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// memory is what the daemon holds.
type memory struct{ residentBytes, peakBytes, mapBytes uint64 }

func (d *daemon) memory() (m memory, err error) {
	pid := d.command.Process.Pid
	if m.residentBytes, err = kibibyteField(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:"); err != nil {
		return m, err
	}
	if m.peakBytes, err = kibibyteField(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:"); err != nil {
		return m, err
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		return m, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("map_type:")) {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "memlock:"); ok {
				bytes, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
				if err != nil {
					return m, err
				}
				m.mapBytes += bytes
			}
		}
	}
	return m, nil
}

func kibibyteField(file, field string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, field)
}
