package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/volume"
)

// shelf is a place for pools, mount points and the list of known pools, and
// names that nobody else has. When the test ends, nothing of it is left.
type shelf struct {
	t    *testing.T
	dir  string
	name string
}

var shelves atomic.Int32

func newShelf(t *testing.T) *shelf {
	t.Helper()
	needs.Root(t)
	needs.Tool(t, "mke2fs")
	_, err := os.Stat("/dev/loop-control")
	needs.That(t, err == nil, "/dev/loop-control")
	_, err = cgroup.Find()
	needs.That(t, err == nil, fmt.Sprintf("a cgroup hierarchy with block I/O: %v", err))
	t.Setenv(poolVariable, "")
	dir, err := os.MkdirTemp("", "daybook-cli-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{t: t, dir: dir, name: fmt.Sprintf("dbcli%d-%d", os.Getpid(), shelves.Add(1))}
	t.Cleanup(s.clear)
	return s
}

// clear detaches and removes all, and says what should not have been left.
func (s *shelf) clear() {
	for _, dir := range []string{"pool", "other", "state/volumes"} {
		pool, err := volume.Open(context.Background(), s.path(dir), volume.PoolOptions{})
		if err != nil {
			continue
		}
		names, _ := pool.Names()
		for _, name := range names {
			// A container that is being started anywhere on this host holds
			// every mount for a moment.
			err := pool.Detach(context.Background(), name)
			for deadline := time.Now().Add(awaittest.Patience); errors.Is(err, volume.ErrBusy) && time.Now().Before(deadline); {
				time.Sleep(50 * time.Millisecond)
				err = pool.Detach(context.Background(), name)
			}
			if err != nil {
				s.t.Error(err)
			}
		}
	}
	for _, line := range kernelLines(s.t, "/proc/self/mountinfo") {
		if strings.Contains(line, s.dir+"/") {
			s.t.Errorf("left mounted: %s", line)
		}
	}
	loops, err := blockdev.Loops()
	if err != nil {
		s.t.Error(err)
	}
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, s.dir+"/") {
			s.t.Errorf("left attached: %s", loop.Path())
			_ = loop.DetachLazily()
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Error(err)
	}
}

func (s *shelf) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// run runs "daybook volume ..." with its list of known pools here.
func (s *shelf) run(words ...string) (string, error) {
	s.t.Helper()
	return execute(s.t, append([]string{"volume", "--state-dir", s.path("state")}, words...)...)
}

// must runs a command that has to succeed.
func (s *shelf) must(words ...string) string {
	s.t.Helper()
	out, err := s.run(words...)
	if err != nil {
		s.t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return out
}

// json runs a command with --json and decodes what it prints.
func (s *shelf) json(into any, words ...string) {
	s.t.Helper()
	out := s.must(append(words, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.t.Fatalf("%s: %v in %s", strings.Join(words, " "), err, out)
	}
}

// fails runs a command that has to end with an exit code.
func (s *shelf) fails(code int, words ...string) error {
	s.t.Helper()
	out, err := s.run(words...)
	if exitCode(err) != code || err == nil {
		s.t.Errorf("%s: exit code %d (%v), want %d; it printed %q", strings.Join(words, " "), exitCode(err), err, code, out)
	}
	return err
}
