package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/control"
)

// Ctrl-C cancels the context.
func TestACommandThatWaitsForItsConfigurationEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	waiting := func(args ...string) {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := newRootCommand()
		cmd.SetArgs(append(args, path))
		time.AfterFunc(100*time.Millisecond, cancel)
		ended := make(chan error, 1)
		go func() { ended <- cmd.ExecuteContext(ctx) }()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) || exitCode(err) != exitInterrupted {
				t.Errorf("%q: %v", args, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%q still waits", args)
		}
	}
	commands := [][]string{{"control", "--check-config"}, {"control", "--config"}, {"agent", "--config"}}
	if os.Geteuid() == 0 {
		commands = append(commands, []string{"adopt", "--config"})
	}
	for _, args := range commands {
		waiting(args...)
	}
}

// A reload waits for a configuration only for a while: control goes on with the old one.
func TestAReloadDoesNotWaitForAPipeForever(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "control.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	f := controlFlags{config: pipe}
	fails := func(what string) {
		t.Helper()
		if _, err := f.reload(t.Context(), 20*time.Millisecond); err == nil || !strings.Contains(err.Error(), "nothing wrote all of "+pipe) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fails("no writer")
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	fails("a writer that does not end")
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := f.reload(ended, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("at the end of control: %v", err)
	}
}

// A pipe can be read once, as that of "control --config <(…)". At a reload nothing is left in it.
func TestAPipeThatHasBeenReadIsNoEmptyConfiguration(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := writer.WriteString("containers: [{match: /a}]\n"); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	path := fmt.Sprintf("/proc/self/fd/%d", reader.Fd())
	again := readAgain(control.ReadConfig)
	if config, err := readConfiguration(t.Context(), path, again); err != nil || len(config.Containers) != 1 {
		t.Errorf("%+v, %v", config, err)
	}
	if _, err := readConfiguration(t.Context(), path, again); err == nil || !strings.Contains(err.Error(), "nothing more to read") {
		t.Errorf("the configuration of a pipe that has been read: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfiguration(t.Context(), empty, again); err != nil {
		t.Errorf("an empty file: %v", err)
	}
}
