package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/volume"
)

// longFreeze is for snapshots of attached volumes: a busy host may need more than the
// default.
const longFreeze = "--max-freeze=10m"

// A dropped SSH session and Ctrl-\ leave as little as Ctrl-C does.
func TestASnapshotThatASignalEndsCleansUp(t *testing.T) {
	s := newShelf(t)
	pool, target := s.path("pool"), s.path("mnt")
	s.must("create", s.name, "--pool", pool, "--size", "512M", "--provision", "full")
	s.must("attach", s.name, "--target", target)
	for _, ending := range []unix.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGTERM} {
		var said bytes.Buffer
		command := exec.Command("/proc/self/exe", "volume", "--state-dir", s.path("state"), "snapshot", s.name, "monday", longFreeze)
		command.Env = append(os.Environ(), commandVariable+"=1")
		command.Stdout, command.Stderr = &said, &said
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		half := func() []string {
			paths, err := filepath.Glob(filepath.Join(pool, "work", "*"))
			if err != nil {
				t.Fatal(err)
			}
			return paths
		}
		awaittest.Until(t, awaittest.Patience, "it copies", func() bool { return len(half()) > 0 })
		if err := command.Process.Signal(ending); err != nil {
			t.Error(err)
		}
		_ = command.Wait()
		if code := command.ProcessState.ExitCode(); code != exitInterrupted {
			t.Errorf("%v: exit code %d, %s", ending, code, said.String())
		}
		if left := half(); len(left) > 0 {
			t.Errorf("%v: left %q", ending, left)
		}
		if snapshots, err := filepath.Glob(filepath.Join(pool, "volumes", s.name, "snapshots", "*")); len(snapshots) > 0 || err != nil {
			t.Errorf("%v: snapshots %q, %v", ending, snapshots, err)
		}
	}
}

func TestAFreezeIsBoundedAndReported(t *testing.T) {
	s := newShelf(t)
	target := s.path("mnt")
	s.must("create", s.name, "--pool", s.path("pool"), "--size", "64M", "--provision", "full")
	s.must("attach", s.name, "--target", target)
	for _, words := range [][]string{{"snapshot", s.name, "monday"}, {"clone", s.name, "copy"}, {"send", s.name, "--output", s.path("stream")}} {
		for _, bad := range []string{"0", "-1s", "48h", "soon"} {
			if err := s.fails(exitUsage, append(words, "--max-freeze", bad)...); err != nil && !strings.Contains(err.Error(), "max-freeze") {
				t.Error(err)
			}
		}
		if err := s.fails(exitFailure, append(words, "--max-freeze", "1ms")...); !errors.Is(err, volume.ErrNotFrozen) {
			t.Error(err)
		}
	}
	// As it is when the snapshot and its guardian are killed.
	record := filepath.Join(s.path("pool"), "volumes", s.name, "volume.json")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	frozen := bytes.Replace(text, []byte("{\n"), []byte("{\n  \"frozen\": true,\n"), 1)
	if err := os.WriteFile(record, frozen, 0o600); err != nil {
		t.Fatal(err)
	}
	type frozenJSON struct {
		Problem         string
		Frozen          bool
		FreezeAbandoned bool `json:"freeze_abandoned"`
	}
	var v frozenJSON
	s.json(&v, "inspect", s.name)
	if !v.Frozen || !v.FreezeAbandoned || !strings.Contains(v.Problem, "frozen") {
		t.Errorf("%+v", v)
	}
	var listed struct {
		Volumes []struct {
			FreezeAbandoned bool `json:"freeze_abandoned"`
		}
	}
	s.json(&listed, "list")
	if len(listed.Volumes) != 1 || !listed.Volumes[0].FreezeAbandoned {
		t.Errorf("%+v", listed)
	}
	for _, command := range [][]string{{"inspect", s.name}, {"list"}} {
		if text := s.must(command...); !strings.Contains(text, "daybook volume repair") {
			t.Errorf("%s prints\n%s", command[0], text)
		}
	}
	s.must("repair")
	v = frozenJSON{} // what is not so is left out
	s.json(&v, "inspect", s.name)
	if v.Frozen || v.FreezeAbandoned || v.Problem != "" {
		t.Errorf("after the repair: %+v", v)
	}
	// With enough time it is made.
	s.must("snapshot", s.name, "monday", longFreeze)
}
