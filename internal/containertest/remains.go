package containertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/procstat"
)

// runcContainerState is the state of a container's process according to runc.
type runcContainerState struct {
	PID         int               `json:"init_process_pid"`
	Start       uint64            `json:"init_process_start"`
	CgroupPaths map[string]string `json:"cgroup_paths"`
}

// runcStates finds the containers of all runtimes in a workshop.
func runcStates(dir string) []runcContainerState {
	var list []runcContainerState
	for _, pattern := range []string{dir + "/runc-state/*", dir + "/runc-root/*/*", dir + "/exec/runtime-runc/*/*", "/run/containerd/runc/" + filepath.Base(dir) + "/*"} {
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

// shimSockets finds the files in /run/containerd/s that killed containerd shims
// leave behind.
func shimSockets(dir string) []string {
	var list []string
	files, _ := filepath.Glob(dir + "/exec/containerd/daemon/io.containerd.runtime.v2.task/*/*/address")
	ofCRI, _ := filepath.Glob(dir + "/exec/containerd/io.containerd.runtime.v2.task/*/*/address")
	files = append(files, ofCRI...)
	for _, file := range files {
		content, _ := os.ReadFile(file)
		if socket, ok := strings.CutPrefix(strings.TrimSpace(string(content)), "unix://"); ok && strings.HasPrefix(socket, "/run/containerd/s/") {
			list = append(list, socket)
		}
	}
	return list
}

// processesOf finds the processes that have the directory in their command
// line, and their descendants.
func processesOf(dir string) []int {
	parents := make(map[int]int)
	owned := make(map[int]bool)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		process, runs := running(pid)
		if !runs {
			continue
		}
		parents[pid] = process.Parent
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

// running returns the state of a process; false for no process, and for one that has ended
// and is not waited for.
func running(pid int) (procstat.Stat, bool) {
	process, err := procstat.Read(pid)
	return process, err == nil && process.State != 'Z'
}

// detachLoopsBelow makes the kernel release the files of a killed test's volumes
// when they are unmounted.
func detachLoopsBelow(dir string) {
	loops, _ := blockdev.Loops()
	for _, loop := range loops {
		if strings.HasPrefix(loop.File, dir+"/") {
			loop.DetachLazily()
		}
	}
}

func unmountBelow(dir string) {
	content, _ := os.ReadFile("/proc/self/mountinfo")
	for _, line := range slices.Backward(strings.Split(string(content), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
}
