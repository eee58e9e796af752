package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/volume"
)

func TestPoolIsFoundWithoutItsFlag(t *testing.T) {
	s := newShelf(t)
	// Nothing known, nothing named: the default pool is made.
	s.must("create", "a", "--size", "16M")
	var v inspected
	if s.json(&v, "inspect", "a"); v.Pool != s.path("state/volumes") {
		t.Errorf("it is in %s", v.Pool)
	}
	// The same name elsewhere is another volume, and then the name alone
	// names neither.
	s.must("create", "a", "--size", "32M", "--pool", s.path("other"))
	err := s.fails(exitUsage, "inspect", "a")
	if err == nil || !strings.Contains(err.Error(), s.path("state/volumes")) || !strings.Contains(err.Error(), s.path("other")) {
		t.Errorf("the error does not tell the pools: %v", err)
	}
	for _, words := range [][]string{{"delete", "a"}, {"resize", "a", "--size", "64M"}, {"attach", "a", "--target", s.path("mnt")}} {
		s.fails(exitUsage, words...)
	}
	if s.json(&v, "inspect", "a", "--pool", s.path("other")); v.SizeBytes != 32<<20 {
		t.Errorf("in the other pool: %+v", v)
	}
	t.Setenv(poolVariable, s.path("other"))
	if s.json(&v, "inspect", "a"); v.SizeBytes != 32<<20 {
		t.Errorf("by the environment: %+v", v)
	}
	if s.json(&v, "inspect", "a", "--pool", s.path("state/volumes")); v.SizeBytes != 16<<20 {
		t.Errorf("the flag over the environment: %+v", v)
	}
	var listed struct{ Volumes []inspected }
	if s.json(&listed, "list"); len(listed.Volumes) != 1 {
		t.Errorf("list by the environment: %+v", listed)
	}
	t.Setenv(poolVariable, "")
	if s.json(&listed, "list"); len(listed.Volumes) != 2 {
		t.Errorf("list of all: %+v", listed)
	}
	if text, err := s.run("list"); err != nil || strings.Count(text, "\n") != 3 {
		t.Errorf("%v, %q", err, text)
	}
	s.must("delete", "a", "--pool", s.path("other"))
	s.must("delete", "a")
}

func TestQuotaOfAPoolIsSetAndKept(t *testing.T) {
	s := newShelf(t)
	s.must("pool", "--pool", s.path("pool"), "--create", "--quota", "40M")
	s.must("create", "a", "--size", "32M", "--pool", s.path("pool"))
	if err := s.fails(exitFailure, "create", "b", "--size", "16M", "--pool", s.path("pool")); !errors.Is(err, volume.ErrNoSpace) {
		t.Errorf("over the quota: %v", err)
	}
	var told struct {
		Pools []struct {
			Pool     string
			Volumes  int
			Quota    uint64 `json:"quota_bytes"`
			Promised uint64 `json:"promised_bytes"`
		}
	}
	s.json(&told, "pool", "--quota", "48M")
	if len(told.Pools) != 1 || told.Pools[0].Pool != s.path("pool") || told.Pools[0].Volumes != 1 || told.Pools[0].Quota != 48<<20 || told.Pools[0].Promised != 32<<20 {
		t.Errorf("pool tells %+v", told)
	}
	s.must("create", "b", "--size", "16M", "--pool", s.path("pool"))
	if text := s.must("pool"); !strings.Contains(text, "48MiB") {
		t.Errorf("pool prints %q", text)
	}
}

// The keeper puts a thread back that somebody moved, finds pools that become
// known later, and ends when it is told to.
func TestKeeperKeepsPoolsThatBecomeKnownLater(t *testing.T) {
	s := newShelf(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		root := newRootCommand()
		root.SetArgs([]string{"volume", "--state-dir", s.path("state"), "keep"})
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		ended <- root.ExecuteContext(ctx)
	}()
	s.must("create", s.name, "--size", "32M", "--pool", s.path("pool"))
	s.must("attach", s.name, "--target", s.path("mnt"))
	var v inspected
	s.json(&v, "inspect", s.name)
	tree, err := cgroup.Find()
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Move(v.JBD2PID, cgroup.RootPath); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(awaittest.Patience); cgroupOf(t, v.JBD2PID) != v.JournalCgroup; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the thread is in %s still", cgroupOf(t, v.JBD2PID))
		}
	}
	// A second keeper of the same pool is refused.
	if err := s.fails(exitFailure, "keep", "--pool", s.path("pool")); !errors.Is(err, volume.ErrBusy) {
		t.Errorf("two keepers: %v", err)
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(awaittest.Patience):
		t.Fatal("it does not end")
	}
	if at := cgroupOf(t, v.JBD2PID); at != v.JournalCgroup {
		t.Errorf("its end moved the thread to %s", at)
	}
}
