package placement

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/daybook-project/daybook/internal/cgroup"
)

// Status is the present place of a thread, and what the kernel reports of its cgroups.
// Unknown values are 0 or "".
type Status struct {
	// PID is the thread's process ID, and Cgroup its present cgroup; Placed says
	// whether that is the planned one.
	PID    int
	Cgroup string
	Placed bool
	// Weight is the effective weight of the parent cgroup, JournalWeight that of the
	// journal's cgroup among the parent's children; 0 if the disk has no weights.
	Weight, JournalWeight uint64
	// ReadBytes and WriteBytes were charged to the journal's cgroup on the disk.
	ReadBytes, WriteBytes uint64
	// ProcessorLimit is the cgroup whose processor limit (cpu.max) the thread is under; ""
	// if there is none.
	ProcessorLimit string
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
	if status.Cgroup != "" {
		status.ProcessorLimit, _, _ = tree.ProcessorLimit(status.Cgroup)
	}
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

// Last remembers the thread of a file system. The zero value is ready.
type Last struct {
	pid  int
	comm string
}

// PID returns the remembered thread if it is alive. Otherwise it calls find, which reads
// all processes.
func (l *Last) PID(find func() (int, error)) (int, error) {
	if l.comm != "" && CommandName(l.pid) == l.comm { // "": it ended when it was found
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

// KeepInContainer keeps the thread in the container's cgroup as long as other processes
// are in it. The runtime could not remove a cgroup in which only the thread is left.
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
	alone, err := t.alone(pids, pid)
	if err != nil {
		return err
	}
	switch {
	case alone && inPlace:
		return t.LeaveContainer()
	case alone || inPlace:
		return nil
	}
	if err := tree.Move(pid, t.State.Journal); err != nil {
		return err
	}
	return t.moveWorkers(tree, t.State.Journal)
}

// alone says whether no process is among those but the threads of the journal.
func (t Thread) alone(pids []int, pid int) (bool, error) {
	var workers []int
	if t.Workers != nil && len(pids) > 1 {
		var err error
		if workers, err = t.Workers(); err != nil {
			return false, err
		}
	}
	for _, other := range pids {
		if other != pid && !slices.Contains(workers, other) {
			return false, nil
		}
	}
	return true, nil
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
	t.Log.Info("moved the journal's thread out of the cgroup of a container that has ended", "volume", t.Name, "pid", pid, "cgroup", t.State.Journal)
	if err := tree.Move(pid, cgroup.RootPath); err != nil {
		return err
	}
	return t.moveWorkers(tree, cgroup.RootPath)
}
