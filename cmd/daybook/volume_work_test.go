package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/volume"
)

// lostWork puts into the pool what a killed create on LVM leaves: the record of a volume,
// in a volume group that is gone.
func (s *shelf) lostWork(t *testing.T, pool, like string) (work string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(pool, "volumes", like, "volume.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatal(err)
	}
	work = "01234567-89ab-4cde-8f01-23456789abcd"
	record["format"], record["name"], record["id"], record["provision"] = 2, like+"-lost", work, "full"
	record["lvm"] = map[string]any{"volume_group": "daybook-gone", "name": "daybook-" + work}
	if text, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(pool, "work", work)
	if err := errors.Join(os.Mkdir(directory, 0o711), os.WriteFile(filepath.Join(directory, "volume.json"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	for name, script := range map[string]string{"lvs": "echo 'Volume group not found' >&2; exit 5", "vgs": `echo '{"report":[{"vg":[]}]}'`} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	return work
}

// Something that cannot be removed keeps nobody from the volumes; a person may forget it.
func TestKeepStartsBesideAWorkThatIsLeftAndRepairForgetsIt(t *testing.T) {
	s := newShelf(t)
	pool := s.path("pool")
	s.must("create", s.name, "--size", "32M", "--pool", pool)
	work := s.lostWork(t, pool, s.name)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		root := newRootCommand()
		root.SetArgs([]string{"volume", "keep", "--pool", pool})
		root.SetOut(io.Discard)
		root.SetErr(write)
		err := root.ExecuteContext(ctx)
		_ = write.Close()
		ended <- err
	}()
	if err := read.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	for piece := make([]byte, 4096); !strings.Contains(log.String(), "keeping the jbd2 threads"); {
		n, err := read.Read(piece)
		log.Write(piece[:n])
		if err != nil {
			t.Fatalf("it does not keep the pool: %v: %s", err, log.String())
		}
	}
	if !strings.Contains(log.String(), "not all of the pool could be repaired") || !strings.Contains(log.String(), work) {
		t.Errorf("it does not report what is left: %s", log.String())
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-ended; err != nil {
		t.Errorf("keep ended with %v", err)
	}
	if err := s.fails(exitFailure, "repair", "--pool", pool); !errors.Is(err, volume.ErrWorkLeft) || !strings.Contains(err.Error(), "repair --forget "+work) {
		t.Errorf("%v", err)
	}
	s.fails(exitUsage, "repair", "--pool", pool, "--forget", "")
	s.fails(exitUsage, "repair", "--pool", pool, "--forget", "01234567-89ab-4cde-8f01-000000000000")
	if out := s.must("repair", "--pool", pool, "--forget", work); !strings.Contains(out, "removed 1 unfinished") {
		t.Errorf("%q", out)
	}
	if out := s.must("repair", "--pool", pool); !strings.Contains(out, "nothing to repair") {
		t.Errorf("%q", out)
	}
}
