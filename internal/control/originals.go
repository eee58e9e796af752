package control

import (
	"errors"
	"io/fs"

	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/systemd"
)

// Originals finds the weights that cgroups have apart from control's corrections, in the states
// of controls that run or were killed. Other parts of Daybook that set weights need them:
// in the files they would find the corrected ones.
type Originals struct {
	// RunDir records the state directories of this boot's controls; StateDir is used for a disk
	// that is not recorded there.
	RunDir, StateDir string
}

// statesOfControl are those that Originals has read.
var statesOfControl = knownStates{rest: restingTime}

// HostOriginals are those of this host.
func HostOriginals() Originals { return Originals{RunDir: DefaultRunDir, StateDir: DefaultStateDir} }

// Weight returns what control would restore now: the original weights of a cgroup on a disk, or
// what another program wrote since control's last write. now is what the weight file named file
// contains, id is the cgroup's ID, and unit is the weight of its systemd unit on the disk (0: none).
// Both are returned as they are if no control of this boot has changed them. The caller reads them
// before the call, and again if a control may have ended meanwhile. The error says that a state
// exists and cannot be read.
func (o Originals) Weight(disk blockdev.Disk, file string, id uint64, now Setting, unit uint64) (Setting, uint64, error) {
	dir, remembered := rememberedStateDir(o.RunDir, disk.Name)
	if !remembered {
		dir = o.StateDir
	}
	state, err := statesOfControl.load(dir, disk.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return now, unit, nil
	}
	if err != nil {
		return now, unit, err
	}
	if state.BootID != bootID() || state.Dev != disk.Dev.String() || state.WeightFile != file || replaced(disk, state.DiskInode) {
		return now, unit, nil
	}
	for _, c := range state.Cgroups {
		if c.ID != id {
			continue
		}
		last := c.lastWritten(readWritten(dir, disk.Name))
		switch {
		case last == nil && c.SystemdUnit == "":
			return c.Weight, unit, nil // control sets no weight of its unit
		case last == nil:
			return c.Weight, c.SystemdWeight, nil // as a restore would
		}
		if scheduler, err := disk.Scheduler(); err == nil {
			last.switched = scheduler.Current != state.Scheduler
		}
		ofUnit := unit
		if c.SystemdUnit != "" && last.ownUnit(unit, func(weight uint64) uint64 { return systemd.UnitWeight(file, weight) }) {
			ofUnit = c.SystemdWeight
		}
		return last.merge(c.Weight, now), ofUnit, nil
	}
	return now, unit, nil
}
