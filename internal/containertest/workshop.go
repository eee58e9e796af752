// Package containertest starts real container runtimes for tests: dockerd,
// containerd, runc and LXC, each in a private directory. Everything is removed
// when the test ends; the next test removes the remains of a killed one.
package containertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/needs"
	"golang.org/x/sys/unix"
)

// A Workshop is the directory for all state of a test's runtimes. Its name is
// part of the names of everything that they make, so that the next run can
// remove the remains of a killed one.
type Workshop struct {
	t    testing.TB
	tree *cgroup.Tree
	// Dir holds all their state.
	Dir string
	// Name is unique to the test and part of all names that it makes.
	Name string
}

const workshopPrefix = "daybook-containers-"

func New(t testing.TB) *Workshop {
	t.Helper()
	needs.Root(t)
	tree, err := cgroup.Find()
	needs.That(t, err == nil, "a cgroup hierarchy with block I/O")
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), workshopPrefix+"*"))
	for _, dir := range left {
		pid, err := strconv.Atoi(strings.Split(strings.TrimPrefix(filepath.Base(dir), workshopPrefix), "-")[0])
		if err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			clearAway(dir)
		}
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", workshopPrefix, os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clearAway(dir) })
	return &Workshop{t, tree, dir, filepath.Base(dir)}
}

// In returns the workshop for a part of the test: failures belong to that part,
// and processes that it starts end with it.
func (w *Workshop) In(t testing.TB) *Workshop { return &Workshop{t, w.tree, w.Dir, w.Name} }

// Path is a path in its directory.
func (w *Workshop) Path(parts ...string) string {
	return filepath.Join(append([]string{w.Dir}, parts...)...)
}

// PluginSocket is the path where the workshop's own volume plugin may listen.
// Docker searches only there.
func (w *Workshop) PluginSocket() string { return pluginSocket(w.Name) }

func pluginSocket(name string) string { return "/run/docker/plugins/" + name + ".sock" }

func ledgerFile(dir string) string { return filepath.Join(dir, "ledger") }

// OwnsCgroup records a cgroup whose name does not identify its owner, in every
// hierarchy, unless it existed before.
func (w *Workshop) OwnsCgroup(path string) {
	w.t.Helper()
	if _, err := w.tree.Lookup(path); err == nil {
		return
	}
	f, err := os.OpenFile(ledgerFile(w.Dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, path)
		f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// clearAway ends the processes of a workshop, unmounts everything below its
// directory, and removes its cgroups and the directory. It finds all of these
// by the unique name of the directory, so that it does not miss processes that
// were started just before a kill.
func clearAway(dir string) {
	containers, sockets := runcStates(dir), shimSockets(dir)
	for range 100 { // a daemon can restart its child before it is killed, too
		pids := processesOf(dir)
		for _, c := range containers {
			if process, runs := running(c.PID); runs && c.Start != 0 && process.StartTicks == c.Start {
				pids = append(pids, c.PID)
			}
		}
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, socket := range sockets {
		os.Remove(socket)
	}
	detachLoopsBelow(dir) // first: the kernel names their files by the mounts
	unmountBelow(dir)
	for _, c := range containers {
		for _, path := range c.CgroupPaths {
			removeCgroup(path)
		}
	}
	named, _ := filepath.Glob("/sys/fs/cgroup/*/*" + filepath.Base(dir) + "*")
	volumes, _ := filepath.Glob("/sys/fs/cgroup/*/daybook/*" + filepath.Base(dir) + "*")
	named = append(named, volumes...)
	made, _ := filepath.Glob(dir + "/data/containers/*")
	for _, container := range made { // by a docker killed before runc wrote its state
		left, _ := filepath.Glob("/sys/fs/cgroup/*/docker/" + filepath.Base(container))
		named = append(named, left...)
	}
	for _, path := range named {
		removeCgroup(path)
	}
	parents, _ := filepath.Glob("/sys/fs/cgroup/*/daybook")
	for _, path := range parents {
		unix.Rmdir(path) // only if there is no other volume
	}
	os.Remove(pluginSocket(filepath.Base(dir)))
	ledger, _ := os.ReadFile(ledgerFile(dir))
	lines := strings.Fields(string(ledger))
	slices.SortFunc(lines, func(a, b string) int { return len(b) - len(a) }) // children first
	for _, line := range lines {
		left, _ := filepath.Glob("/sys/fs/cgroup/*" + line)
		for _, path := range left {
			unix.Rmdir(path) // only if it is not in use
		}
	}
	os.RemoveAll(filepath.Join("/run/containerd/runc", filepath.Base(dir)))
	os.RemoveAll(dir)
}

// removeCgroup removes a cgroup of a workshop and its descendants. It ends what still
// runs there: a container that started while its runtime was ended has no parent and no
// command line that tell whose it is. The kernel needs a short time after the last process.
func removeCgroup(path string) {
	if !strings.HasPrefix(filepath.Clean(path), "/sys/fs/cgroup/") {
		return
	}
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		if e.IsDir() {
			removeCgroup(filepath.Join(path, e.Name()))
		}
	}
	for range 100 {
		if unix.Rmdir(path) != unix.EBUSY {
			return
		}
		text, _ := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Run runs a program to its end and returns its output.
func (w *Workshop) Run(name string, arguments ...string) string {
	w.t.Helper()
	command := exec.Command(name, arguments...)
	out, err := w.Output(command)
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// Output uses a file: daemons that a program leaves behind keep a pipe open.
func (w *Workshop) Output(command *exec.Cmd) (string, error) {
	f, err := os.CreateTemp(w.Dir, "output-")
	if err != nil {
		return "", err
	}
	defer f.Close()
	command.Stdout, command.Stderr = f, f
	err = command.Run()
	content, _ := os.ReadFile(f.Name())
	return string(content), err
}

// Start starts a daemon that the test ends.
func (w *Workshop) Start(name string, arguments ...string) (logFile string) {
	w.t.Helper()
	return w.Spawn(exec.Command(name, arguments...)).Log
}

// Daemon is a program that the test started, and ends.
type Daemon struct {
	// Log is the file to which it writes.
	Log     string
	process *os.Process
	ended   chan struct{}
}

// Spawn starts a daemon. Its command line must contain the workshop's
// directory.
func (w *Workshop) Spawn(command *exec.Cmd) *Daemon {
	w.t.Helper()
	log, err := os.CreateTemp(w.Dir, filepath.Base(command.Path)+"-*.log")
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		w.t.Fatal(err)
	}
	d := &Daemon{log.Name(), command.Process, make(chan struct{})}
	go func() { command.Wait(); close(d.ended) }()
	w.t.Cleanup(d.Stop)
	return d
}

// Stop ends it by SIGTERM, and by SIGKILL if that takes too long.
func (d *Daemon) Stop() {
	d.process.Signal(unix.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(15 * time.Second):
		d.Kill()
	}
}

// Kill ends it by SIGKILL.
func (d *Daemon) Kill() {
	d.process.Kill()
	<-d.ended
}

// Crash ends all its processes by SIGKILL: daemons, runtimes and containers.
func (w *Workshop) Crash() {
	for range 100 { // a daemon can start another one before it is killed
		pids := processesOf(w.Dir)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Await waits until a condition holds; what describes it in the message.
func (w *Workshop) Await(what, logFile string, holds func() bool) {
	w.t.Helper()
	for range 600 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, _ := os.ReadFile(logFile)
	if len(log) > 4000 {
		log = log[len(log)-4000:]
	}
	w.t.Fatalf("%s: not within 30 s\n%s", what, log)
}
