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
	// Name is unique in the workshop, of a-z and 0-9.
	Name string
	// Parent is the cgroup below which the container's is made; "" leaves it
	// to the runtime.
	Parent string
	// Cgroup is the container's cgroup itself, instead of Parent; for runc.
	Cgroup string
	// Source is a directory of the host that the container has as /data,
	// unless it is ""; what is mounted below it later is seen, too, if it is
	// a shared mount.
	Source string
	// Script is what its shell runs; Sleep if it is "".
	Script string
	// BeforeRemoval is a program that is run after the container's last
	// process has ended and before its cgroup is removed, by runtimes that
	// have such a hook: that is LXC alone.
	BeforeRemoval string
}

// Sleep is the script of containers that need do nothing. The shell must not
// become the sleep, which would not hear SIGTERM.
const Sleep = "trap 'exit 0' TERM PWR; while :; do /bin/busybox sleep 0.1; done"

func (s Spec) script() string {
	if s.Script == "" {
		return Sleep
	}
	return s.Script
}

// Container is one that was started. Errors hold what the runtime printed.
type Container interface {
	// ID is what the runtime calls it.
	ID() string
	// PID is of its first process.
	PID() int
	// Stop ends it by SIGTERM, as the runtime does, and lets the runtime
	// remove its cgroup.
	Stop() error
	// Reap lets the runtime notice that it has been killed, and remove its
	// cgroup.
	Reap() error
	// Remove ends it if it runs, and removes it.
	Remove() error
}

// Runtime starts containers.
type Runtime interface {
	Start(Spec) Container
}

// CgroupOf is the real path of a container's process, which must be another
// than this test's own.
func (w *Workshop) CgroupOf(pid int) string {
	w.t.Helper()
	got, err := w.tree.Of(pid)
	own, _ := w.tree.Of(os.Getpid())
	if pid <= 1 || err != nil || got == own || got == "/" {
		w.t.Fatalf("process %d is in cgroup %q, %v; this test in %q", pid, got, err, own)
	}
	return got
}

// Kill ends a container's first process, and with it the container, without
// its runtime.
func (w *Workshop) Kill(c Container) {
	w.t.Helper()
	pid, started := c.PID(), startTime(c.PID())
	if started == "" {
		w.t.Fatalf("process %d has ended already", pid)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		w.t.Fatal(err)
	}
	w.Await("the killed process ends", "", func() bool { return startTime(pid) != started })
}

func (w *Workshop) pid(text string) int {
	w.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || pid <= 1 {
		w.t.Fatalf("the runtime says that the container's process is %q", text)
	}
	return pid
}

// said makes an error of what a program printed.
func said(output string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(output))
}
