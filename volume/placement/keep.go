package placement

import (
	"errors"
	"fmt"
	"os"

	"github.com/daybook-project/daybook/internal/cgroup"
)

// Status is where a thread is now, and what the kernel says of its cgroups. What
// the kernel does not say is 0 or "".
type Status struct {
	// PID is the thread's, and Cgroup where it is; Placed says whether that is
	// where it should be.
	PID    int
	Cgroup string
	Placed bool
	// Weight is that in force of the parent cgroup, JournalWeight of the
	// journal's among the parent's children; 0 where the disk has no weights.
	Weight, JournalWeight uint64
	// ReadBytes and WriteBytes were charged to the journal's cgroup on the disk.
	ReadBytes, WriteBytes uint64
}

// Status asks the kernel.
func (t Thread) Status() (status Status) {
	s := t.State
	tree, err := tree()
	if err != nil {
		return status
	}
	if pid, err := t.PID(); err == nil {
		status.PID = pid
		status.Cgroup, _ = tree.Of(pid)
	}
	// A read-only mount commits nothing, and often has no thread.
	status.Placed = s.Placement == None || t.ReadOnly || status.Cgroup == s.Journal
	if s.Placement == None {
		return status
	}
	weights, disk, _, err := t.weights(tree)
	if err == nil {
		if setting, err := weights.Get(s.Cgroup); err == nil {
			status.Weight = setting.Effective()
		}
		if setting, err := weights.Get(s.Journal); err == nil && s.Placement == Parent {
			status.JournalWeight = setting.Effective()
		}
	}
	if io, err := tree.IO(s.Journal); err == nil {
		status.ReadBytes, status.WriteBytes = io[disk.Dev].ReadBytes, io[disk.Dev].WriteBytes
	}
	return status
}

// Last is the thread that was seen last of a file system. The zero value is ready.
type Last struct {
	pid  int
	comm string
}

// PID is the thread that was seen last, if it lives. Otherwise find finds it anew,
// by looking at all processes.
func (l *Last) PID(find func() (int, error)) (int, error) {
	if l.pid != 0 && CommandName(l.pid) == l.comm {
		return l.pid, nil
	}
	pid, err := find()
	if err != nil {
		return 0, err
	}
	l.pid, l.comm = pid, CommandName(pid)
	return pid, nil
}

// CommandName is a process's name, /proc/PID/comm; "" if it has ended.
func CommandName(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(text)
}

// InPlace says whether the thread is in the journal's cgroup.
func (t Thread) InPlace() (bool, error) {
	tree, err := tree()
	if err != nil {
		return false, err
	}
	pid, err := t.PID()
	if err != nil {
		return false, err
	}
	now, err := tree.Of(pid)
	return now == t.State.Journal, err
}

// KeepInContainer has the thread in the container's cgroup as long as others are
// in it. A thread that is alone there keeps the runtime from removing the cgroup.
func (t Thread) KeepInContainer() error {
	tree, err := tree()
	if err != nil {
		return err
	}
	pid, err := t.PID()
	if err != nil {
		return err
	}
	inPlace, err := t.InPlace()
	if err != nil {
		return err
	}
	pids, err := tree.ProcessesBelow(t.State.Journal)
	if errors.Is(err, cgroup.ErrVanished) {
		pids, err = nil, nil
	}
	if err != nil {
		return err
	}
	alone := len(pids) == 0 || len(pids) == 1 && pids[0] == pid
	switch {
	case alone && inPlace:
		return t.LeaveContainer()
	case alone || inPlace:
		return nil
	}
	return tree.Move(pid, t.State.Journal)
}

// LeaveContainer moves the thread from the container's cgroup back to the root
// cgroup, where the kernel started it.
func (t Thread) LeaveContainer() error {
	tree, err := tree()
	if err != nil {
		return err
	}
	pid, err := t.PID()
	if err != nil {
		return err
	}
	if inPlace, err := t.InPlace(); err != nil || !inPlace {
		return err
	}
	t.Log.Info("took the jbd2 thread out of the container's cgroup, which has ended", "volume", t.Name, "pid", pid, "cgroup", t.State.Journal)
	return tree.Move(pid, cgroup.RootPath)
}
