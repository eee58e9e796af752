package container

import (
	"archive/tar"
	"debug/elf"
	"encoding/json"
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

// A workshop is where a test keeps real runtimes: a directory for all their
// state, whose name is part of all that they make, so that the next run can
// clear away what a killed run left.
type workshop struct {
	t    testing.TB
	tree *cgroup.Tree
	dir  string
	// name is unique to the test and part of all names that it makes.
	name string
}

const workshopPrefix = "daybook-container-test-"

func newWorkshop(t testing.TB) *workshop {
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
	return &workshop{t, tree, dir, filepath.Base(dir)}
}

func (w *workshop) path(parts ...string) string {
	return filepath.Join(append([]string{w.dir}, parts...)...)
}

func ledgerFile(dir string) string { return filepath.Join(dir, "ledger") }

// ownsCgroup enters in the ledger a cgroup, in every hierarchy, whose name does
// not tell whose it is, unless it was there before.
func (w *workshop) ownsCgroup(path string) {
	w.t.Helper()
	if _, err := w.tree.Lookup(path); err == nil {
		return
	}
	f, err := os.OpenFile(ledgerFile(w.dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, path)
		f.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// clearAway ends the processes of a workshop, unmounts what is below its
// directory, and removes its cgroups and the directory. All of these are found
// by the directory's name, which no other has, so that nothing started in the
// moment before a kill is missed.
func clearAway(dir string) {
	containers, sockets := runcStates(dir), shimSockets(dir)
	for range 100 { // a daemon can start its child anew before it is killed too
		pids := processesOf(dir)
		for _, c := range containers {
			if c.Start != 0 && startTime(c.PID) == fmt.Sprint(c.Start) {
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
	unmountBelow(dir)
	for _, c := range containers {
		for _, path := range c.CgroupPaths {
			removeCgroup(path)
		}
	}
	named, _ := filepath.Glob("/sys/fs/cgroup/*/*" + filepath.Base(dir) + "*")
	made, _ := filepath.Glob(dir + "/data/containers/*")
	for _, container := range made { // by a docker killed before runc wrote its state
		left, _ := filepath.Glob("/sys/fs/cgroup/*/docker/" + filepath.Base(container))
		named = append(named, left...)
	}
	for _, path := range named {
		removeCgroup(path)
	}
	ledger, _ := os.ReadFile(ledgerFile(dir))
	for line := range strings.FieldsSeq(string(ledger)) {
		left, _ := filepath.Glob("/sys/fs/cgroup/*" + line)
		for _, path := range left {
			unix.Rmdir(path) // only if nobody else uses it by now
		}
	}
	os.RemoveAll(filepath.Join("/run/containerd/runc", filepath.Base(dir)))
	os.RemoveAll(dir)
}

// removeCgroup removes a cgroup and its descendants; the kernel needs a moment
// after the last process.
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
		time.Sleep(10 * time.Millisecond)
	}
}

// runcContainerState is what runc's state says of a container's process.
type runcContainerState struct {
	PID         int               `json:"init_process_pid"`
	Start       uint64            `json:"init_process_start"`
	CgroupPaths map[string]string `json:"cgroup_paths"`
}

// runcStates finds the containers of all runtimes in a workshop.
func runcStates(dir string) []runcContainerState {
	var list []runcContainerState
	for _, pattern := range []string{dir + "/runc-state/*", dir + "/exec/runtime-runc/*/*", "/run/containerd/runc/" + filepath.Base(dir) + "/*"} {
		files, _ := filepath.Glob(pattern + "/state.json")
		for _, file := range files {
			var state runcContainerState
			if content, err := os.ReadFile(file); err == nil && json.Unmarshal(content, &state) == nil {
				list = append(list, state)
			}
		}
	}
	return list
}

// shimSockets finds what containerd's shims leave in /run/containerd/s when
// they are killed.
func shimSockets(dir string) []string {
	var list []string
	files, _ := filepath.Glob(dir + "/exec/containerd/daemon/io.containerd.runtime.v2.task/*/*/address")
	for _, file := range files {
		content, _ := os.ReadFile(file)
		if socket, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "unix://"); ok && strings.HasPrefix(socket, "/run/containerd/s/") {
			list = append(list, socket)
		}
	}
	return list
}

// processesOf finds the processes that have the directory in their command
// line, and the descendants of those.
func processesOf(dir string) []int {
	parents := make(map[int]int)
	owned := make(map[int]bool)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || startTime(pid) == "" {
			continue
		}
		parents[pid], _ = strconv.Atoi(statFields(pid)[1])
		command, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		owned[pid] = strings.Contains(string(command), dir)
	}
	var list []int
	for pid := range parents {
		for p := pid; p != 0; p = parents[p] {
			if owned[p] {
				list = append(list, pid)
				break
			}
		}
	}
	return list
}

// statFields are the fields of /proc/PID/stat from the third, the state, on.
func statFields(pid int) []string {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(content), ") ")
	if fields := strings.Fields(after); len(fields) > 19 {
		return fields
	}
	return make([]string, 20)
}

// startTime tells a process from a later one of the same ID; "" for none, and
// for one that has ended and is not waited for.
func startTime(pid int) string {
	if fields := statFields(pid); fields[0] != "Z" {
		return fields[19]
	}
	return ""
}

func unmountBelow(dir string) {
	content, _ := os.ReadFile("/proc/self/mountinfo")
	for _, line := range slices.Backward(strings.Split(string(content), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
}

// run runs a program to its end and gives its output.
func (w *workshop) run(name string, arguments ...string) string {
	w.t.Helper()
	command := exec.Command(name, arguments...)
	out, err := w.output(command)
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// output goes to a file: daemons that a program leaves behind keep a pipe open.
func (w *workshop) output(command *exec.Cmd) (string, error) {
	f, err := os.CreateTemp(w.dir, "output-")
	if err != nil {
		return "", err
	}
	defer f.Close()
	command.Stdout, command.Stderr = f, f
	err = command.Run()
	content, _ := os.ReadFile(f.Name())
	return string(content), err
}

// start starts a daemon that the test ends.
func (w *workshop) start(name string, arguments ...string) (logFile string) {
	w.t.Helper()
	log, err := os.Create(w.path(filepath.Base(name) + ".log"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(name, arguments...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { command.Wait(); close(ended) }()
	w.t.Cleanup(func() {
		command.Process.Signal(unix.SIGTERM)
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			command.Process.Kill()
			<-ended
		}
	})
	return log.Name()
}

// await waits until something holds; what it is about is in the message.
func (w *workshop) await(what, logFile string, holds func() bool) {
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

// busybox gives the path of a static busybox, all that these containers hold.
func (w *workshop) busybox() string {
	w.t.Helper()
	file := needs.Tool(w.t, "busybox")
	binary, err := elf.Open(file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer binary.Close()
	static := !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	needs.That(w.t, static, "a static busybox (package busybox-static)")
	return file
}

// rootfs makes a directory with a busybox and what runtimes mount on.
func (w *workshop) rootfs() string {
	w.t.Helper()
	dir := w.path("rootfs")
	for _, sub := range []string{"bin", "dev", "proc", "sys", "tmp", "etc", "run"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	content, err := os.ReadFile(w.busybox())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "bin/busybox"), content, 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return dir
}

// image makes a tar of the same for docker import.
func (w *workshop) image() string {
	w.t.Helper()
	content, err := os.ReadFile(w.busybox())
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := os.Create(w.path("busybox.tar"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	archive := tar.NewWriter(f)
	err = archive.WriteHeader(&tar.Header{Name: "bin/busybox", Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = archive.Write(content)
	}
	if err == nil {
		err = archive.Close()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return f.Name()
}

// cgroupOf is the real path of a container's process, which must be another
// than this test's own.
func (w *workshop) cgroupOf(pid string) string {
	w.t.Helper()
	number, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil || number <= 1 {
		w.t.Fatalf("the runtime says that the container's process is %q", pid)
	}
	got, err := w.tree.Of(number)
	own, _ := w.tree.Of(os.Getpid())
	if err != nil || got == own || got == "/" {
		w.t.Fatalf("process %d is in cgroup %q, %v; this test in %q", number, got, err, own)
	}
	return got
}
