package adopt

import (
	"log/slog"
	"slices"

	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/volume/placement"
)

// Status is one placement and what the kernel reports of it.
type Status struct {
	Name       string `json:"name"`
	Device     string `json:"device"`
	UUID       string `json:"uuid"`
	Mountpoint string `json:"mountpoint"`
	// For is what the user or the agent meant.
	For string `json:"for"`
	// Cgroup is the parent cgroup, JournalCgroup the one made for the threads.
	Cgroup        string `json:"cgroup"`
	JournalCgroup string `json:"journal_cgroup"`
	Neutral       bool   `json:"neutral"`
	Once          bool   `json:"once"`
	// KeeperPID is the process that keeps it; 0: none, or unknown.
	KeeperPID int `json:"keeper_pid"`
	// Abandoned: its keeper has died, and nobody has undone it yet.
	Abandoned bool `json:"abandoned"`
	// PID is the thread; 0 while the file system is not mounted. Placed says whether it
	// is in JournalCgroup.
	PID    int  `json:"pid"`
	Placed bool `json:"placed"`
	// Weight is that of the parent cgroup on the disk; 0 where there is none.
	Weight uint64 `json:"weight"`
	// The bytes that were charged to JournalCgroup.
	JournalReadBytes  uint64 `json:"journal_read_bytes"`
	JournalWriteBytes uint64 `json:"journal_write_bytes"`
	// Problem is why the record cannot be used; "" if it can.
	Problem string `json:"problem,omitempty"`
}

// List reports all placements, by name.
func (s Store) List() ([]Status, error) {
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	all := []Status{}
	for _, name := range names {
		record, err := s.Read(name)
		if err != nil {
			all = append(all, Status{Name: name, Problem: err.Error()})
			continue
		}
		status := record.status(s.thread(&record, slog.New(slog.DiscardHandler)))
		pid, kept := s.KeptBy(name)
		status.KeeperPID, status.Abandoned = pid, !kept && !record.Once
		if record.BootID != boot {
			status.Problem = "the host was restarted since: nothing of it is left"
		}
		all = append(all, status)
	}
	return all, nil
}

func (r Record) status(thread placement.Thread) Status {
	now := thread.Status()
	return Status{
		Name: r.Name, Device: r.Device, UUID: r.UUID, Mountpoint: r.Mountpoint, For: r.For,
		Cgroup: r.Placed.Cgroup, JournalCgroup: r.Placed.Journal, Neutral: r.Neutral, Once: r.Once,
		PID: now.PID, Placed: now.PID != 0 && now.Placed, Weight: now.Weight,
		JournalReadBytes: now.ReadBytes, JournalWriteBytes: now.WriteBytes,
	}
}

// Status reports the placements of this keeper. It looks for no thread that it knows: with
// many processes that would cost more than all else.
func (k *Keeper) Status() []Status {
	all := []Status{}
	for _, name := range k.Kept() {
		now := k.kept[name]
		all = append(all, now.record.status(k.thread(now)))
	}
	return all
}
