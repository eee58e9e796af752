package control

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
)

// Outcome is what came of putting a device's settings back. Lists are of
// cgroup paths, sorted.
type Outcome struct {
	Device string `json:"device"`
	// Restored have their original settings again.
	Restored []string `json:"restored"`
	// Vanished are gone, Replaced were made anew at the same path since:
	// there was nothing of theirs to restore.
	Vanished []string `json:"vanished"`
	Replaced []string `json:"replaced"`
	// Failed could not be restored; the state is kept for another try.
	Failed []string `json:"failed"`
	// Tunables of the scheduler that have their original value again.
	Tunables []string `json:"tunables"`
	// Rebooted: the host was started anew since, so all was reset anyway.
	Rebooted bool `json:"rebooted"`
}

// putBack restores what the state says and returns what is still to be done,
// nil if nothing.
func (s *State) putBack(host Host, log *slog.Logger) (outcome Outcome, left *State, err error) {
	outcome = Outcome{Device: s.Device, Restored: []string{}, Vanished: []string{}, Replaced: []string{},
		Failed: []string{}, Tunables: []string{}}
	rest := *s
	rest.Cgroups, rest.Tunables = nil, nil
	var failures []error
	for _, c := range s.Cgroups {
		err := c.putBack(host, s.Device)
		switch {
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
	if err := s.putBackTunables(host, &outcome); err != nil {
		rest.Tunables = s.Tunables
		failures = append(failures, err)
	}
	if len(failures) == 0 {
		return outcome, nil, nil
	}
	return outcome, &rest, errors.Join(failures...)
}

var errReplaced = errors.New("another cgroup has the path now")

func (c CgroupState) putBack(host Host, device string) error {
	id, err := host.Cgroups.ID(c.Cgroup)
	if err != nil {
		return err
	}
	if id != c.ID {
		return errReplaced
	}
	// The range is the weight file's, known only here.
	r := host.Weights.Range()
	if !r.Holds(c.Weight.Default) || c.Weight.Device != 0 && !r.Holds(c.Weight.Device) {
		return fmt.Errorf("cannot restore weight %d (device: %d) of cgroup %s: %s takes %d to %d; set it by hand",
			c.Weight.Default, c.Weight.Device, c.Cgroup, host.Weights.File(), r.Min, r.Max)
	}
	// One may work where the other does not: try both.
	err = host.Weights.Restore(c.Cgroup, c.Weight)
	if c.WriteBytesPerSecond != 0 && host.Limits != nil {
		err = errors.Join(err, host.Limits.Set(c.Cgroup, c.WriteBytesPerSecond))
	}
	if err != nil {
		return fmt.Errorf("cannot restore cgroup %s on %s: %w", c.Cgroup, device, err)
	}
	return nil
}

func (s *State) putBackTunables(host Host, outcome *Outcome) error {
	if len(s.Tunables) == 0 || host.Tunables == nil {
		return nil
	}
	scheduler, err := host.Tunables.Scheduler()
	if err != nil {
		return fmt.Errorf("cannot restore the tunables of %s: %w", s.Device, err)
	}
	if scheduler != s.Scheduler {
		return nil // they went with the scheduler
	}
	for name, value := range s.Tunables {
		if err := host.Tunables.Set(name, value); err != nil {
			return fmt.Errorf("cannot restore %s of %s: %w", name, s.Device, err)
		}
		outcome.Tunables = append(outcome.Tunables, name)
	}
	return nil
}

// recoverState puts back what an earlier run left; the lock must be held. ok
// is false if there was nothing.
func recoverState(stateDir, device string, open func(*State) (Host, error), log *slog.Logger) (outcome Outcome, ok bool, err error) {
	state, err := LoadState(stateDir, device)
	if errors.Is(err, fs.ErrNotExist) {
		return Outcome{Device: device}, false, nil
	}
	if err != nil {
		return Outcome{Device: device}, false, err
	}
	if boot := bootID(); state.BootID != boot {
		log.Info("the host was started anew since: nothing to restore", "device", device)
		return Outcome{Device: device, Rebooted: true}, true, state.Remove(stateDir)
	}
	host, err := open(state)
	if err != nil {
		return Outcome{Device: device}, false, fmt.Errorf("cannot restore the settings of %s: %w", device, err)
	}
	outcome, left, err := state.putBack(host, log)
	if left != nil {
		// What is restored already must not be restored again over what
		// someone chose since; if this cannot be saved, it will be.
		return outcome, true, errors.Join(err, left.Save(stateDir))
	}
	return outcome, true, state.Remove(stateDir)
}

// Restore puts back what a run that died left changed on one device, and
// nothing if there is nothing (ok is false). It may be repeated. open gives
// the host's files for a state; deviceDir is as in AcquireLock. The error is a
// *BusyError while a process controls the device.
func Restore(stateDir, device, deviceDir string, open func(*State) (Host, error), log *slog.Logger) (outcome Outcome, ok bool, err error) {
	lock, err := AcquireLock(stateDir, device, deviceDir)
	if err != nil {
		return Outcome{Device: device}, false, err
	}
	defer lock.Release()
	return recoverState(stateDir, device, open, log)
}
