package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// A SIGHUP that comes while control starts, as from systemctl reload, does not end it: it
// reads the configuration again.
func TestAHangupWhileControlStartsIsAReload(t *testing.T) {
	r := newCgroups(t)
	r.makeDisk(t, 0, blockdev.BFQ)
	// control waits at each reading until the test writes to the pipe.
	config, next := filepath.Join(r.dir, "control.yaml"), filepath.Join(r.dir, "next")
	for _, pipe := range []string{config, next} {
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	control := startDaybook(t, "control", "--dry-run", "--config", config)
	open := func(what string) (pipe *os.File) {
		t.Helper()
		await(t, control, what, func() (is bool) {
			var err error
			pipe, err = os.OpenFile(config, os.O_WRONLY|unix.O_NONBLOCK, 0)
			return err == nil
		})
		return pipe
	}
	read := func(what string) {
		t.Helper()
		pipe := open(what)
		if next != "" {
			if err := os.Rename(next, config); err != nil {
				t.Fatal(err)
			}
			next = ""
			if err := control.cmd.Process.Signal(unix.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := fmt.Fprintf(pipe, "interval: 1s\ndevices: [%s]\nstate_dir: %s\n", r.disks[0].Device.Name, filepath.Join(r.dir, "state")); err != nil {
			t.Error(err)
		}
		if err := pipe.Close(); err != nil {
			t.Error(err)
		}
	}
	read("it reads the configuration")
	read("it reads the configuration again")

	// It ends also while it waits for what a reload reads.
	if err := control.cmd.Process.Signal(unix.SIGHUP); err != nil {
		t.Fatal(err)
	}
	pipe := open("it reads the configuration a third time")
	defer pipe.Close()
	if err := control.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !control.hasEnded(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			_ = control.cmd.Process.Kill()
			t.Fatal("it waits for its configuration after SIGTERM")
		}
	}
	if err := control.cmd.Wait(); err != nil {
		t.Errorf("%v; want exit code 0:\n%s", err, control.said(t))
	}
}
