package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
)

// LXC removes the cgroup at once after the container's last process, and does not retry: the
// hook in deploy/lxc runs between the two.
func TestTheStopHookOfLXCReleasesTheJournalBeforeTheCgroupIsRemoved(t *testing.T) {
	r := newAdoptRig(t)
	w := containertest.New(t)
	hook, err := filepath.Abs("../../deploy/lxc/daybook-release")
	if err != nil {
		t.Fatal(err)
	}
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) string {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	daybook := write(w.Path("daybook"), fmt.Sprintf("export %s=1\nexec %s \"$@\" --state-dir %s", commandVariable, program, r.state))
	wrapped := write(w.Path("hook"), fmt.Sprintf("DAYBOOK=%s exec %s \"$@\"", daybook, hook))
	c := w.LXC().Start(containertest.Spec{Name: "db", Parent: "/" + w.Name, BeforeRemoval: wrapped + " " + r.fs.Dir})
	at := w.CgroupOf(c.PID())
	r.start(r.fs.Dir, "--cgroup", at)
	if now := r.at(); filepath.Dir(now) != at {
		t.Errorf("the journal's thread is in %s, want a child of %s", now, at)
	}
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := r.tree.Lookup(at); !errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("the container's cgroup is left: %v", err)
	}
	if now := r.at(); now != "/" {
		t.Errorf("the journal's thread is in %s", now)
	}
}
