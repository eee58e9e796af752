package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybook-project/daybook/internal/cgroup"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/meter"
)

// livePromises are the configured shares of the controllers in this process.
type livePromises struct {
	mutex    sync.Mutex
	byDevice map[string]control.Ideals
}

func (p *livePromises) set(device string, ideals control.Ideals) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.byDevice == nil {
		p.byDevice = map[string]control.Ideals{}
	}
	p.byDevice[device] = ideals
}

// end removes those of a disk whose control has ended.
func (p *livePromises) end(device string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	delete(p.byDevice, device)
}

func (p *livePromises) of(device string) (meter.Promises, bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	ideals, ok := p.byDevice[device]
	return meter.Promises(ideals), ok
}

// recordedPromises are the configured shares that another process, daybook
// control, recorded in its state. The weights in force there are corrected
// ones; without this record, they would count as the configured ones.
type recordedPromises struct {
	log *slog.Logger
	// changed is called when the set of cgroups with a configured share
	// changes.
	changed func()
	states  map[string]recordedState // by device
	looked  time.Time
	units   map[string]bool
}

// recordedState is the state of a controller, as read.
type recordedState struct {
	path   string
	file   fileVersion
	ideals control.Ideals
	ok     bool
}

// fileVersion changes when the file is replaced.
type fileVersion struct {
	inode, size uint64
	changed     unix.Timespec
}

// lookAge is how long one reading of the states is valid for all disks of a
// sample.
const lookAge = 200 * time.Millisecond

func newRecordedPromises(log *slog.Logger) *recordedPromises {
	p := &recordedPromises{log: log, states: map[string]recordedState{}}
	p.look()
	return p
}

func (p *recordedPromises) of(device string) (meter.Promises, bool) {
	if time.Since(p.looked) > lookAge {
		p.look()
	}
	state := p.states[device]
	return meter.Promises(state.ideals), state.ok
}

// ideal makes the meter group cgroups as daybook control groups them. Their
// weights do not matter in this case.
func (p *recordedPromises) ideal(path, _ string) (uint64, bool) {
	if p.units[path] {
		return 1, true
	}
	return 0, false
}

// look reads the states that changed.
func (p *recordedPromises) look() {
	p.looked = time.Now()
	states := map[string]recordedState{}
	dirs, err := stateDirs()
	if err != nil {
		p.log.Debug("cannot find the states of daybook control", "error", err)
	}
	for _, dir := range dirs {
		devices, err := control.StateDevices(dir)
		if err != nil {
			p.log.Debug("cannot list the states of daybook control", "error", err)
		}
		for _, device := range devices {
			if state := p.read(dir, device); state.ok || !states[device].ok {
				states[device] = state
			}
		}
	}
	p.states = states
	units := map[string]bool{}
	for _, state := range states {
		if state.ideals.Configured {
			maps.Copy(units, state.ideals.Units)
		}
	}
	if !maps.Equal(units, p.units) {
		p.units = units
		if p.changed != nil {
			p.changed()
		}
	}
}

// read returns one state, from memory if the file did not change.
func (p *recordedPromises) read(dir, device string) recordedState {
	state := recordedState{path: control.StatePath(dir, device)}
	var st unix.Stat_t
	if err := unix.Stat(state.path, &st); err != nil {
		return state
	}
	state.file = fileVersion{inode: st.Ino, size: uint64(st.Size), changed: st.Ctim}
	if known := p.states[device]; known.path == state.path && known.file == state.file {
		return known
	}
	tree, err := cgroup.Find()
	if err == nil {
		state.ideals, err = control.LoadIdeals(dir, device, control.CgroupIDs(tree))
	}
	state.ok = err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.log.Warn("cannot read the configured shares of daybook control; targets follow the weights in force", "device", device, "error", err)
	}
	return state
}

// stateDirs are the state directories of this boot's daemons and the default
// one.
func stateDirs() ([]string, error) {
	dirs, err := control.RememberedStateDirs(control.DefaultRunDir)
	dirs = append(dirs, control.DefaultStateDir)
	slices.Sort(dirs)
	return slices.Compact(dirs), err
}
