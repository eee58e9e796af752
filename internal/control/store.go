package control

import (
	"errors"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control/law"
)

// ErrVanished is wrapped by the stores' errors if the cgroup is gone. That is no
// failure: containers start and end.
var ErrVanished = errors.New("the cgroup is gone")

// Cgroup is a cgroup as it exists now. A cgroup that is removed and made again at
// the same path has another ID.
type Cgroup struct {
	Path string
	ID   uint64
}

// Cgroups lists the cgroups that exist.
type Cgroups interface {
	// List returns all cgroups but the root.
	List() ([]Cgroup, error)
	// ID returns the ID of the cgroup at path, or ErrVanished.
	ID(path string) (uint64, error)
}

// Setting has a cgroup's weights as they are in its files, with what is needed to
// restore them exactly.
type Setting = cgroup.Setting

// WeightStore reads and writes the weights that govern one disk.
type WeightStore interface {
	// File is the weight file's name, for messages.
	File() string
	// Range is the range that the file accepts.
	Range() law.Range
	// Get reads a cgroup's weight.
	Get(cgroup string) (Setting, error)
	// Set makes weight the cgroup's weight on this disk.
	Set(cgroup string, weight uint64) error
	// Restore restores what Get returned.
	Restore(cgroup string, setting Setting) error
}

// Limits are the limits of one cgroup on one disk, in bytes per second; 0 means
// none.
type Limits struct{ Read, Write uint64 }

// LimitStore reads and writes the limits on one disk.
type LimitStore interface {
	// Get reads a cgroup's limits.
	Get(cgroup string) (Limits, error)
	// Set changes them. It does not write those that stay the same.
	Set(cgroup string, limits Limits) error
}

// Tunables reads and writes the tunables of the disk's scheduler.
type Tunables interface {
	// Scheduler is the name of the scheduler in force.
	Scheduler() (string, error)
	Get(name string) (string, error)
	Set(name, value string) error
}

// Host is what a Controller reads and writes.
type Host struct {
	Cgroups Cgroups
	Weights WeightStore
	Units   Units      // nil: no cgroup belongs to a service manager
	Limits  LimitStore // nil: control sets no limits
	// WrittenBySystemd reports whether systemd may write the weight of a unit to the cgroup's files
	// while control sets no weights of units, as on cgroup v1; nil: of no cgroup.
	WrittenBySystemd func(cgroup string) bool
	// FlatLimits: a limit does not apply to the cgroups below, as on cgroup v1.
	FlatLimits bool
	// Unweighted: the disk's scheduler knows no weights. Then Weights has those of
	// the configuration, and writes none.
	Unweighted bool
	Tunables   Tunables // nil: control sets no tunables
	// Scheduler is the disk's scheduler for which this Host was opened; "": that of Tunables.
	Scheduler string
	// SchedulerInode distinguishes the scheduler in force from one that was chosen at another
	// time; 0, or nil: not known.
	SchedulerInode func() uint64
	Writeback      Writeback // nil: control starts no writeback
	// Replaced: the state is of an earlier disk of this name and number. The kernel has removed
	// its limits, its tunables and the weights on it.
	Replaced bool
	// CostDivides: io.cost divides the disk by the weights.
	CostDivides bool
	// Warnings about the disk's scheduler are logged at the start.
	Warnings []string
}

func (h Host) schedulerInode() uint64 {
	if h.SchedulerInode == nil {
		return 0
	}
	return h.SchedulerInode()
}
