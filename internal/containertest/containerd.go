package containertest

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Containerd is the containerd of a dockerd. It also runs containers of other
// clients.
type Containerd struct {
	w    *Workshop
	root string
}

// Containerd returns the daemon below this dockerd.
func (d *Docker) Containerd() *Containerd { return &Containerd{d.w, d.w.Rootfs()} }

type containerdContainer struct {
	c   *Containerd
	id  string
	pid int
}

func (c *Containerd) try(arguments ...string) (string, error) {
	arguments = append([]string{"--address", c.w.Path("exec/containerd/containerd.sock"), "--namespace", c.w.Name}, arguments...)
	out, err := c.w.Output(exec.Command("ctr", arguments...))
	return out, said(out, err)
}

// Start starts a container.
func (c *Containerd) Start(s Spec) Container {
	c.w.t.Helper()
	arguments := []string{"run", "--detach", "--null-io"}
	if s.Parent != "" {
		arguments = append(arguments, "--cgroup", s.Parent+"/"+s.Name)
	}
	if s.Source != "" {
		arguments = append(arguments, "--mount", fmt.Sprintf("type=bind,src=%s,dst=/data,options=rbind:rw:rslave", s.Source))
	}
	arguments = append(arguments, "--rootfs", c.root, s.Name, "/bin/busybox", "sh", "-c", s.script())
	if _, err := c.try(arguments...); err != nil {
		c.w.t.Fatalf("ctr run: %v", err)
	}
	tasks, err := c.try("task", "list")
	if err != nil {
		c.w.t.Fatal(err)
	}
	started := containerdContainer{c, s.Name, 0}
	c.w.t.Cleanup(func() { _ = started.Remove() })
	for line := range strings.SplitSeq(tasks, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == s.Name {
			started.pid = c.w.pid(fields[1])
		}
	}
	return started
}

func (c containerdContainer) ID() string { return c.id }

func (c containerdContainer) PID() int { return c.pid }

func (c containerdContainer) Stop() error {
	if _, err := c.c.try("task", "kill", "--signal", "SIGTERM", c.id); err != nil {
		return err
	}
	return c.Reap()
}

// Reap deletes the task, which removes the cgroup.
func (c containerdContainer) Reap() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		out, err := c.c.try("task", "delete", c.id)
		dying := strings.Contains(out, "must be stopped")
		if err == nil || !dying || time.Now().After(deadline) {
			return err
		}
	}
}

func (c containerdContainer) Remove() error {
	out, err := c.c.try("task", "delete", "--force", c.id)
	if err != nil && !strings.Contains(out, "not found") {
		return err
	}
	_, err = c.c.try("container", "delete", c.id)
	return err
}
