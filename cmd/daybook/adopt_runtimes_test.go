package main

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/containertest"
)

// These runtimes remove the container's cgroup after its last process, and try again while a
// thread is inside. No hook is needed: adopt moves the thread out meanwhile.
func TestContainersOfRealRuntimesEndWhileTheirJournalIsAdopted(t *testing.T) {
	w := containertest.New(t)
	docker, podman := w.StartDocker(), w.StartPodman()
	for name, start := range map[string]func(containertest.Spec) containertest.Container{
		"docker": docker.Start, "containerd": docker.Containerd().Start,
		"podman": func(s containertest.Spec) containertest.Container { return podman.Create(s) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newAdoptRig(t)
			c := start(containertest.Spec{Name: "adopted" + name})
			at := w.CgroupOf(c.PID())
			r.start(r.fs.Dir, "--container", c.ID())
			if now := r.at(); filepath.Dir(now) != at {
				t.Errorf("the journal's thread is in %s, want a child of %s", now, at)
			}
			if err := c.Stop(); err != nil {
				t.Errorf("the container does not end: %v", err)
			}
			if _, err := r.tree.Lookup(at); !errors.Is(err, cgroup.ErrVanished) {
				t.Errorf("the container's cgroup is left: %v", err)
			}
			if now := r.at(); now != "/" {
				t.Errorf("the journal's thread is in %s", now)
			}
			if err := c.Remove(); err != nil {
				t.Error(err)
			}
		})
	}
}
