package containertest

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Spec is a container to start.
type Spec struct {
	// Name is unique in the workshop and consists of a-z and 0-9.
	Name string
	// Parent is the parent of the container's cgroup; "" means the runtime's
	// default.
	Parent string
	// Cgroup is the container's cgroup itself, instead of Parent; for runc.
	Cgroup string
	// Source is a directory of the host that the container sees as /data,
	// unless it is "". Later mounts below it are visible, too, if it is a
	// shared mount.
	Source string
	// Script is run by its shell; Sleep if it is "".
	Script string
	// BeforeRemoval is a program that runs after the container's last process
	// has ended and before its cgroup is removed. Only LXC has such a hook.
	BeforeRemoval string
}

// Sleep is the script of idle containers. The shell must not exec the sleep,
// which would ignore SIGTERM.
const Sleep = "trap 'exit 0' TERM PWR; while :; do /bin/busybox sleep 0.1; done"

func (s Spec) script() string {
	if s.Script == "" {
		return Sleep
	}
	return s.Script
}

// Container is a started container. Errors contain the runtime's output.
type Container interface {
	// ID is the runtime's name for it.
	ID() string
	// PID is the ID of its first process.
	PID() int
	// Stop ends it by SIGTERM, as the runtime does, and makes the runtime
	// remove its cgroup.
	Stop() error
	// Reap makes the runtime notice that the container was killed, and remove
	// its cgroup.
	Reap() error
	// Remove ends the container if it runs, and removes it.
	Remove() error
}

// Runtime starts containers.
type Runtime interface {
	Start(Spec) Container
}

// CgroupOf is the real path of a container's process, which must differ from
// this test's own.
func (w *Workshop) CgroupOf(pid int) string {
	w.t.Helper()
	got, err := w.tree.Of(pid)
	own, _ := w.tree.Of(os.Getpid())
	if pid <= 1 || err != nil || got == own || got == "/" {
		w.t.Fatalf("process %d is in cgroup %q, %v; this test in %q", pid, got, err, own)
	}
	return got
}

// Kill ends the first process of a container, and with it the container,
// without the runtime.
func (w *Workshop) Kill(c Container) {
	w.t.Helper()
	pid := c.PID()
	process, runs := running(pid)
	if !runs {
		w.t.Fatalf("process %d has ended already", pid)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	w.Await("the killed process ends", "", func() bool {
		now, runs := running(pid)
		return !runs || now.StartTicks != process.StartTicks
	})
}

func (w *Workshop) pid(text string) int {
	w.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || pid <= 1 {
		w.t.Fatalf("the runtime reports the container's process %q", text)
	}
	return pid
}

// said makes an error that includes a program's output.
func said(output string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(output))
}
