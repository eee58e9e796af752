package control

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/blockdev"
)

// Outcome is the result of restoring a device's settings. Lists are of cgroup
// paths, sorted.
type Outcome struct {
	Device string `json:"device"`
	// Restored have their original settings again.
	Restored []string `json:"restored"`
	// Vanished are gone. Replaced were created again at the same path since.
	// Neither had anything to restore.
	Vanished []string `json:"vanished"`
	Replaced []string `json:"replaced"`
	// Kept have a weight or limit that another program chose meanwhile. It was not
	// changed.
	Kept []string `json:"kept"`
	// Failed could not be restored; they stay in the state for another try.
	Failed []string `json:"failed"`
	// Tunables of the scheduler that have their original value again.
	Tunables []string `json:"tunables"`
	// Rebooted means that the host was restarted since, which reset all settings.
	Rebooted bool `json:"rebooted"`
	// DiskReplaced means that another disk has the name and number now. Its limits, its
	// tunables and the weights on it were not changed.
	DiskReplaced bool `json:"disk_replaced"`
}

// newOutcome has lists that are empty and not nil, so that they are lists in JSON,
// too.
func newOutcome(device string) Outcome {
	return Outcome{Device: device, Restored: []string{}, Vanished: []string{}, Replaced: []string{},
		Kept: []string{}, Failed: []string{}, Tunables: []string{}}
}

// restore restores the settings in the state, except those that another program
// changed since. It returns what is still to be done, nil if nothing. last has what
// Daybook wrote, by cgroup ID; nil means not known: then it restores all.
func (s *State) restore(host Host, last map[uint64]written, log *slog.Logger) (outcome Outcome, left *State, err error) {
	outcome = newOutcome(s.Device)
	rest := *s
	rest.Cgroups, rest.Tunables, rest.TunablesSet = nil, nil, nil
	var failures []error
	if host.Units != nil {
		defer host.Units.Await()()
	}
	if host.Replaced {
		outcome.DiskReplaced = true
		host.Limits, host.Tunables = nil, nil
		log.Warn("another disk has this name now; its limits and tunables stay", "device", s.Device)
	}
	switched := s.switched(host)
	s.followRenamed(host.Cgroups)
	for _, c := range s.unitsLast() {
		w := c.lastWritten(last)
		if w != nil {
			w.switched = switched
		}
		now := c
		if host.Replaced {
			now.Weight.Device = 0 // it was removed with the disk
			if w == nil {
				now.keepDevice(host)
			}
		}
		kept, err := now.restore(host, s.Device, w)
		switch {
		case err == nil && kept:
			outcome.Kept = append(outcome.Kept, c.Cgroup)
			log.Info("another program changed the cgroup's settings; they stay", "cgroup", c.Cgroup)
		case err == nil:
			outcome.Restored = append(outcome.Restored, c.Cgroup)
			log.Debug("restored", "cgroup", c.Cgroup, "weight", c.Weight.Effective())
		case errors.Is(err, errReplaced):
			outcome.Replaced = append(outcome.Replaced, c.Cgroup)
		case errors.Is(err, ErrVanished):
			outcome.Vanished = append(outcome.Vanished, c.Cgroup)
		default:
			outcome.Failed = append(outcome.Failed, c.Cgroup)
			rest.Cgroups = append(rest.Cgroups, c)
			failures = append(failures, err)
		}
	}
	for _, paths := range [][]string{outcome.Restored, outcome.Kept, outcome.Vanished, outcome.Replaced, outcome.Failed} {
		slices.Sort(paths)
	}
	if err := s.restoreTunables(host, &outcome, log); err != nil {
		rest.Tunables, rest.TunablesSet = s.Tunables, s.TunablesSet
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return outcome, nil, nil
	}
	return outcome, &rest, errors.Join(failures...)
}

// keepDevice makes a restore keep the weights on the disk, of the files and of the unit: nothing
// says that they are Daybook's.
func (c *CgroupState) keepDevice(host Host) {
	if now, err := host.Weights.Get(c.Cgroup); err == nil {
		c.Weight.Device = now.Device
	}
	c.SystemdUnit = ""
}

// unitsLast are the cgroups, those of units last: to restore them can mean to wait for a
// service manager that does not answer.
func (s *State) unitsLast() []CgroupState {
	cgroups := slices.Clone(s.Cgroups)
	slices.SortStableFunc(cgroups, func(a, b CgroupState) int {
		return cmp.Compare(min(1, len(a.SystemdUnit)), min(1, len(b.SystemdUnit)))
	})
	return cgroups
}

var errReplaced = errors.New("another cgroup has the path now")

// checkID returns an error if the cgroup is gone, or if another one has its path now: what is
// written to that one would not be restored. It wraps ErrVanished, and errReplaced in the second
// case.
func (c CgroupState) checkID(cgroups Cgroups) error {
	id, err := cgroups.ID(c.Cgroup)
	if err == nil && id != c.ID {
		err = fmt.Errorf("%w: %w", ErrVanished, errReplaced)
	}
	return err
}

// switched reports whether the disk is gone or has another scheduler. Then the
// weights on this disk are gone with it, and no other program removed them.
func (s *State) switched(host Host) bool {
	if s.Scheduler == "" {
		return false
	}
	if host.Tunables == nil {
		return true
	}
	scheduler, err := host.Tunables.Scheduler()
	return err != nil || scheduler != s.Scheduler
}

// lastWritten is what was written last to the cgroup; nil if that is not known. A
// cgroup without a record was never written to.
func (c CgroupState) lastWritten(last map[uint64]written) *written {
	if last == nil {
		return nil
	}
	w, ok := last[c.ID]
	if !ok {
		w = written{Setting: c.Weight, Intended: c.Weight.Effective(), Limit: c.limits(), IntendedLimit: c.limits()}
	}
	return &w
}

// restore restores one cgroup. It keeps what another program wrote since last. The limits come
// first: the weight may have to wait for a service manager.
func (c CgroupState) restore(host Host, device string, last *written) (kept bool, err error) {
	err = c.checkID(host.Cgroups)
	if errors.Is(err, ErrVanished) {
		if unitErr := c.restoreOutlived(host, last); unitErr != nil {
			return false, fmt.Errorf("cannot restore the weight of the unit %s on %s: %w", c.SystemdUnit, device, unitErr)
		}
	}
	if err != nil {
		return false, err
	}
	// One may succeed where the other fails: try both.
	var limitErr error
	if (c.Limited || c.WriteBytesPerSecond != 0) && host.Limits != nil {
		kept, limitErr = c.restoreLimit(host, last)
		limitErr = unlessGone(limitErr)
	}
	weightKept, err := c.restoreWeight(host, last)
	if errors.Is(err, ErrVanished) || errors.Is(err, errRange) {
		return false, err
	}
	kept, err = kept || weightKept, errors.Join(err, limitErr)
	if err != nil {
		return false, fmt.Errorf("cannot restore cgroup %s on %s: %w", c.Cgroup, device, err)
	}
	return kept, nil
}

// unlessGone returns nil for the error of a file that an existing cgroup no longer has. What was
// in it is gone with it, and nothing is left to restore: the module of the scheduler was
// removed, or the parent no longer enables io (cgroup v2; systemd does that when no unit below
// needs io).
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrVanished) {
		return nil
	}
	return err
}

// errRange means that the weight file does not accept the weight in the state.
var errRange = errors.New("beyond the range of the weight file")

func (c CgroupState) restoreWeight(host Host, last *written) (kept bool, err error) {
	setting, now := c.Weight, c.Weight
	if last != nil {
		if now, err = host.Weights.Get(c.Cgroup); err != nil {
			if _, _, unitErr := c.restoreUnit(host.Units, last); unitErr != nil {
				return false, unitErr
			}
			return false, unlessGone(err)
		}
		setting = last.merge(c.Weight, now)
	}
	// The range of the weight file is known only here.
	r := host.Weights.Range()
	if !r.Holds(setting.Default) || setting.Device != 0 && !r.Holds(setting.Device) {
		return false, fmt.Errorf("cannot restore weight %d (device: %d) of cgroup %s: %w: %s takes %d to %d; set it by hand",
			setting.Default, setting.Device, c.Cgroup, errRange, host.Weights.File(), r.Min, r.Max)
	}
	// The unit comes first: systemd then writes to the files.
	unitKept, unitRestored, unitErr := c.restoreUnit(host.Units, last)
	if kept = unitKept || setting != c.Weight; kept && setting == now && !unitRestored {
		return kept, unitErr
	}
	// To ask systemd can have taken seconds.
	if err := c.checkID(host.Cgroups); err != nil {
		return kept, cmp.Or(unitErr, err)
	}
	return kept, errors.Join(unitErr, unlessGone(host.Weights.Restore(c.Cgroup, setting)))
}

// limits are the original ones.
func (c CgroupState) limits() Limits {
	return Limits{Read: c.ReadBytesPerSecond, Write: c.WriteBytesPerSecond}
}

func (c CgroupState) restoreLimit(host Host, last *written) (kept bool, err error) {
	now, err := host.Limits.Get(c.Cgroup)
	if err != nil {
		return false, err
	}
	next := Limits{Read: now.Read, Write: c.WriteBytesPerSecond}
	if c.Limited {
		next.Read = c.ReadBytesPerSecond
	}
	if last != nil && !last.ownWrite(now.Write) {
		kept = now.Write != next.Write
		next.Write = now.Write
	}
	if last != nil && c.Limited && !last.ownRead(now.Read) {
		kept = kept || now.Read != next.Read
		next.Read = now.Read
	}
	if next == now {
		return kept, nil
	}
	return kept, host.Limits.Set(c.Cgroup, next)
}

func (s *State) restoreTunables(host Host, outcome *Outcome, log *slog.Logger) error {
	if len(s.Tunables) == 0 || host.Tunables == nil {
		return nil
	}
	scheduler, err := host.Tunables.Scheduler()
	if errors.Is(err, blockdev.ErrGone) {
		return nil // they are gone with the disk
	}
	if err != nil {
		return fmt.Errorf("cannot restore the tunables of %s: %w", s.Device, err)
	}
	if scheduler != s.Scheduler {
		return nil // the change of the scheduler reset them
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Tunables)) {
		value := s.Tunables[name]
		if set, known := s.TunablesSet[name]; known {
			now, err := host.Tunables.Get(name)
			if now = strings.TrimSpace(now); err == nil && now != set {
				if now != value {
					log.Info("another program changed a tunable; it stays", "device", s.Device, "tunable", name, "value", now)
				}
				continue
			}
		}
		if err := host.Tunables.Set(name, value); err != nil {
			errs = append(errs, fmt.Errorf("cannot restore %s of %s: %w", name, s.Device, err))
			continue
		}
		outcome.Tunables = append(outcome.Tunables, name)
	}
	return errors.Join(errs...)
}

// recoverState restores what an earlier run changed and did not restore; the lock
// must be held. ok is false if there was nothing.
func recoverState(stateDir, device string, open func(*State) (Host, error), log *slog.Logger) (outcome Outcome, ok bool, err error) {
	state, err := LoadState(stateDir, device)
	if errors.Is(err, fs.ErrNotExist) {
		return newOutcome(device), false, nil
	}
	if err != nil {
		return newOutcome(device), false, err
	}
	if boot := bootID(); state.BootID != boot {
		log.Info("the host was restarted since: nothing to restore", "device", device)
		outcome := newOutcome(device)
		outcome.Rebooted = true
		return outcome, true, state.Remove(stateDir)
	}
	host, err := open(state)
	if err != nil {
		return newOutcome(device), false, fmt.Errorf("cannot restore the settings of %s: %w", device, err)
	}
	outcome, left, err := state.restore(host, readWritten(stateDir, device), log)
	if left != nil {
		// What is restored must not be restored again over a later choice of
		// another program. If this save fails, it can be.
		return outcome, true, errors.Join(err, left.Save(stateDir))
	}
	return outcome, true, state.Remove(stateDir)
}

// Restore restores what a killed run left changed on one device. ok is false if
// there is nothing. It may be repeated. open opens the host's files for a state;
// deviceDir is as in AcquireLock. While a process controls the device, the error is
// a *BusyError. When all is restored, the record of the state directory in runDir is removed.
func Restore(stateDir, runDir, device, deviceDir string, open func(*State) (Host, error), log *slog.Logger) (outcome Outcome, ok bool, err error) {
	lock, err := AcquireLock(stateDir, device, deviceDir)
	if err != nil {
		return newOutcome(device), false, err
	}
	defer lock.Release()
	outcome, ok, err = recoverState(stateDir, device, open, log)
	if err == nil {
		forgetStateDir(runDir, device, stateDir)
	}
	return outcome, ok, err
}

// recoverElsewhere restores what an earlier run with another state directory changed and did
// not restore; the lock of the disk must be held. Otherwise what that run wrote would be taken
// for the original settings.
func recoverElsewhere(runDir, stateDir, device string, open func(*State) (Host, error), log *slog.Logger) (outcome Outcome, ok bool, err error) {
	dir, remembered := rememberedStateDir(runDir, device)
	if !remembered || sameDirectory(dir, stateDir) {
		return newOutcome(device), false, nil
	}
	if _, err := os.Lstat(StatePath(dir, device)); errors.Is(err, fs.ErrNotExist) {
		return newOutcome(device), false, nil
	}
	return Restore(dir, runDir, device, "", open, log)
}
