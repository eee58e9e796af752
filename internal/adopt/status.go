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
	all := []Status{}
	names, err := s.Names()
	if err != nil || len(names) == 0 { // in a chroot, where packages are removed, too, there may be no /proc
		return all, err
	}
	boot, err := kernel.BootID()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		record, err := s.Read(name)
		if err != nil {
			all = append(all, Status{Name: name, Problem: err.Error()})
			continue
		}
		status := record.status(s.thread(&record, slog.New(slog.DiscardHandler)))
		pid, kept, err := s.KeptBy(name)
		status.KeeperPID, status.Abandoned = pid, err == nil && !kept && !record.Once
		if err != nil {
			status.Problem = err.Error()
		}
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

// Kept is a placement of a keeper, to ask for its status later, also in another goroutine. It
// does not change with the keeper.
type Kept struct {
	store  Store
	record Record
	last   placement.Last
}

// Name is that of the device in /sys/class/block.
func (k Kept) Name() string { return k.record.Name }

// Status asks the kernel. It looks for no thread that is known: with many processes that would
// cost more than all else.
func (k Kept) Status() Status {
	return k.record.status(k.store.knownThread(&k.record, &k.last, slog.New(slog.DiscardHandler)))
}

// Placements are those of this keeper, by the names of devices.
func (k *Keeper) Placements() (all []Kept) {
	for _, name := range k.Kept() {
		now := k.kept[name]
		record := now.record
		record.Placed.MadeCgroups, record.Placed.EnabledIO = slices.Clone(record.Placed.MadeCgroups), slices.Clone(record.Placed.EnabledIO)
		all = append(all, Kept{k.store, record, now.last})
	}
	return all
}

// Status reports the placements of this keeper.
func (k *Keeper) Status() []Status {
	all := []Status{}
	for _, kept := range k.Placements() {
		all = append(all, kept.Status())
	}
	return all
}
