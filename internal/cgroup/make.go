package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse means that processes or child cgroups are in the cgroup.
var ErrInUse = errors.New("the cgroup is in use")

// Make makes a cgroup whose parent exists; it is no error if the cgroup exists
// already.
func (t *Tree) Make(cgroupPath string) error {
	err := os.Mkdir(t.dir(cgroupPath), 0o755)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return t.explain("make", cgroupPath, "", err)
	}
	return nil
}

// A cgroup stays busy for a short time after its last process has ended.
const (
	removePatience = time.Second
	removePause    = 10 * time.Millisecond
)

// Remove removes an empty cgroup. It is no error if the cgroup is gone already.
// The error wraps ErrInUse if it is not empty.
func (t *Tree) Remove(cgroupPath string) error {
	for deadline := time.Now().Add(removePatience); ; time.Sleep(removePause) {
		err := unix.Rmdir(t.dir(cgroupPath))
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY):
			return t.explain("remove", cgroupPath, "", err)
		case t.hasChildren(cgroupPath), time.Now().After(deadline):
			return fmt.Errorf("cannot remove cgroup %s: %w", clean(cgroupPath), ErrInUse)
		}
	}
}

func (t *Tree) hasChildren(cgroupPath string) bool {
	entries, err := os.ReadDir(t.dir(cgroupPath))
	return err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir)
}

const processesFile = "cgroup.procs"

// Move moves a process, which may be a kernel thread, into a cgroup.
func (t *Tree) Move(pid int, cgroupPath string) error {
	if err := t.write(cgroupPath, processesFile, strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("cannot move process %d: %w", pid, err)
	}
	return nil
}

// Processes lists the processes in a cgroup itself, including kernel threads.
// ErrVanished means that the cgroup is gone.
func (t *Tree) Processes(cgroupPath string) ([]int, error) {
	text, err := t.read(cgroupPath, processesFile)
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, t.explain("read", cgroupPath, processesFile, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// ProcessesBelow lists the processes in a cgroup and all its descendants.
func (t *Tree) ProcessesBelow(cgroupPath string) ([]int, error) {
	pids, err := t.Processes(cgroupPath)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(t.dir(cgroupPath))
	if err != nil {
		return nil, t.explain("list", cgroupPath, "", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		below, err := t.ProcessesBelow(path.Join(cgroupPath, entry.Name()))
		// A threaded one (v2) has threads of processes that a cgroup above it lists.
		if err != nil && !errors.Is(err, ErrVanished) && !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, err
		}
		pids = append(pids, below...)
	}
	return pids, nil
}

const subtreeControlFile = "cgroup.subtree_control"

// IOEnabled reports whether the children of a cgroup have the files of the I/O
// controller. On v1 they always do.
func (t *Tree) IOEnabled(cgroupPath string) (bool, error) {
	if t.version == V1 {
		return true, nil
	}
	enabled, err := t.Enabled(cgroupPath)
	return slices.Contains(enabled, "io"), err
}

// EnableIO enables the I/O controller for the children of a cgroup (v2).
func (t *Tree) EnableIO(cgroupPath string) error {
	return t.write(cgroupPath, subtreeControlFile, "+io")
}

// DisableIO disables it. While the cgroup has children, which may rely on it,
// the error wraps ErrInUse and nothing is changed.
func (t *Tree) DisableIO(cgroupPath string) error {
	if t.hasChildren(cgroupPath) {
		return fmt.Errorf("the I/O controller stays enabled below cgroup %s: %w", clean(cgroupPath), ErrInUse)
	}
	err := t.write(cgroupPath, subtreeControlFile, "-io")
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}
