package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
	read := func(what string) {
		t.Helper()
		var pipe *os.File
		await(t, control, what, func() (is bool) {
			var err error
			pipe, err = os.OpenFile(config, os.O_WRONLY|unix.O_NONBLOCK, 0)
			return err == nil
		})
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
}
