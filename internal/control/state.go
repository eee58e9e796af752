package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/atomicfile"
	"github.com/daybook-project/daybook/internal/blockdev"
	"github.com/daybook-project/daybook/internal/control/law"
	"github.com/daybook-project/daybook/internal/kernel"
	"github.com/daybook-project/daybook/internal/trusted"
	"github.com/daybook-project/daybook/internal/versioned"
)

// State has the settings from before Daybook changed anything on one device. It is
// on disk from before the first change until all is restored.
type State struct {
	// Version of the format; see StateVersion.
	Version int `json:"version"`
	// BootID is the boot that the state belongs to: cgroups do not survive it.
	BootID string `json:"boot_id"`
	// Device is the disk's name in /sys/block, Dev its "major:minor".
	Device string `json:"device"`
	Dev    string `json:"dev"`
	// DiskInode distinguishes the disk from a later one of the same name and number; see
	// [blockdev.Disk.Inode]. 0 means not known, as in the states of earlier versions.
	DiskInode uint64 `json:"disk_inode,omitempty"`
	// WeightFile is the name of the weight file.
	WeightFile string `json:"weight_file"`
	// Tunables are original values, of the scheduler named Scheduler.
	Scheduler string            `json:"scheduler,omitempty"`
	Tunables  map[string]string `json:"tunables,omitempty"`
	// TunablesSet are the values that Daybook wrote, of those in Tunables.
	TunablesSet map[string]string `json:"tunables_set,omitempty"`
	// Configured: see Ideals.
	Configured bool `json:"configured,omitempty"`
	// Actuator and WeightsIgnored are as in account.Control, for other programs.
	Actuator       string `json:"actuator,omitempty"`
	WeightsIgnored bool   `json:"weights_ignored,omitempty"`
	// Cgroups are sorted by path.
	Cgroups []CgroupState `json:"cgroups"`
}

// CgroupState is one cgroup's original settings.
type CgroupState struct {
	Cgroup string `json:"cgroup"`
	// ID distinguishes a cgroup from a later one at the same path.
	ID uint64 `json:"id"`
	// Weight is the original weight.
	Weight Setting `json:"weight"`
	// SystemdUnit is the systemd unit that owns the cgroup; "" means none.
	// SystemdWeight is the unit's original weight on this disk (IODeviceWeight=); 0
	// means none.
	SystemdUnit   string `json:"systemd_unit,omitempty"`
	SystemdWeight uint64 `json:"systemd_weight,omitempty"`
	// WriteBytesPerSecond is the original write limit. 0 means none, or, unless
	// Limited, not changed.
	WriteBytesPerSecond uint64 `json:"write_bytes_per_second,omitempty"`
	// Limited means that limits enforce its share, or did. ReadBytesPerSecond is
	// the original read limit then, 0 for none.
	Limited            bool   `json:"limited,omitempty"`
	ReadBytesPerSecond uint64 `json:"read_bytes_per_second,omitempty"`
	// IdealWeight and Unit are its part of Ideals; 0 means none.
	IdealWeight uint64 `json:"ideal_weight,omitempty"`
	Unit        bool   `json:"unit,omitempty"`
}

// StateVersion is raised when a field changes its meaning.
const StateVersion = 1

const (
	maxStateBytes  = 64 << 20
	maxCgroups     = 200_000
	maxPathBytes   = 4096
	maxDeviceBytes = 64
	maxUnitBytes   = 255
)

// StatePath is the path of the state of a device.
func StatePath(stateDir, device string) string {
	return filepath.Join(stateDir, "control-"+device+".json")
}

// StateDevices lists the devices that have a state in the directory.
func StateDevices(stateDir string) ([]string, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state directory: %w", err)
	}
	var devices []string
	for _, entry := range entries {
		device, isState := strings.CutPrefix(entry.Name(), "control-")
		device, isJSON := strings.CutSuffix(device, ".json")
		if isState && isJSON && checkDevice(device) == nil {
			devices = append(devices, device)
		}
	}
	return devices, nil
}

// LoadState reads and checks a device's state; the error is fs.ErrNotExist if there
// is none. A state that is damaged, or that Daybook did not write, is rejected
// completely.
func LoadState(stateDir, device string) (*State, error) {
	name := StatePath(stateDir, device)
	refuse := func(err error) error {
		if errors.Is(err, versioned.ErrNewer) {
			return fmt.Errorf("state %s was %w; nothing was changed", name, err)
		}
		return fmt.Errorf("state %s is not to be trusted, nothing was changed: %w; "+
			"set the weights by hand and move the file away", name, err)
	}
	text, err := trusted.Read(name, maxStateBytes)
	if refused := new(trusted.Error); errors.As(err, &refused) {
		return nil, refuse(err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the state: %w", err)
	}
	state, err := parseState(text)
	if err != nil {
		return nil, refuse(err)
	}
	if state.Device != device {
		return nil, refuse(fmt.Errorf("it is of the device %q", state.Device))
	}
	return state, nil
}

func parseState(text []byte) (*State, error) {
	if err := versioned.CheckFormat(text, "version", StateVersion); err != nil {
		return nil, err
	}
	// What a newer Daybook has added may need to be restored.
	state := new(State)
	if err := versioned.DecodeStrict(text, state); err != nil {
		if errors.Is(err, versioned.ErrNewer) || json.Valid(text) {
			return nil, err
		}
		return nil, fmt.Errorf("it is cut short or damaged: %w", err)
	}
	return state, state.check()
}

// check checks the rules of a State; both writer and reader use it.
func (s *State) check() error {
	if s.Version != StateVersion {
		return fmt.Errorf("its version is %d, want %d", s.Version, StateVersion)
	}
	if err := checkDevice(s.Device); err != nil {
		return err
	}
	if _, err := blockdev.ParseDev(s.Dev); err != nil {
		return err
	}
	if s.Scheduler != "" && checkDevice(s.Scheduler) != nil { // it has the same letters
		return fmt.Errorf("%.100q is no name of a scheduler", s.Scheduler)
	}
	if s.Actuator != "" && s.Actuator != account.ActuatorWeights && s.Actuator != account.ActuatorLimits {
		return fmt.Errorf("%.100q is no actuator", s.Actuator)
	}
	for _, tunables := range []map[string]string{s.Tunables, s.TunablesSet} {
		for name, value := range tunables {
			if err := checkTunable(name, value); err != nil {
				return err
			}
		}
	}
	if len(s.Cgroups) > maxCgroups {
		return fmt.Errorf("%d cgroups, more than %d", len(s.Cgroups), maxCgroups)
	}
	seen := make(map[string]bool, len(s.Cgroups))
	for _, c := range s.Cgroups {
		if err := checkCgroup(c.Cgroup); err != nil {
			return err
		}
		if seen[c.Cgroup] {
			return fmt.Errorf("cgroup %q is there twice", c.Cgroup)
		}
		seen[c.Cgroup] = true
		if c.Weight.Default < 1 || c.Weight.Default > law.MaxWeight || c.Weight.Device > law.MaxWeight {
			return fmt.Errorf("cgroup %s: %d (device: %d) is no weight", c.Cgroup, c.Weight.Default, c.Weight.Device)
		}
		if err := checkUnit(c.SystemdUnit); err != nil || c.SystemdWeight > law.MaxWeight {
			return fmt.Errorf("cgroup %s: unit %.100q with weight %d", c.Cgroup, c.SystemdUnit, c.SystemdWeight)
		}
		if c.IdealWeight > law.MaxWeight*maxCgroups {
			return fmt.Errorf("cgroup %s: %d is no ideal weight", c.Cgroup, c.IdealWeight)
		}
	}
	return nil
}

// checkCgroup accepts only paths that lead to a cgroup below the root. JSON changes what is no
// UTF-8, so that such a path would be another one in the state.
func checkCgroup(cgroup string) error {
	if len(cgroup) > maxPathBytes || !strings.HasPrefix(cgroup, "/") || cgroup == "/" ||
		path.Clean(cgroup) != cgroup || strings.ContainsAny(cgroup, "\x00\n") || !utf8.ValidString(cgroup) {
		return fmt.Errorf("%.100q is no path of a cgroup", cgroup)
	}
	return nil
}

// checkUnit accepts the names of units, and "".
func checkUnit(unit string) error {
	if len(unit) > maxUnitBytes || strings.ContainsAny(unit, "/\x00\n") {
		return fmt.Errorf("%.100q is no name of a unit", unit)
	}
	return nil
}

// checkDevice accepts the names that sysfs gives to disks, and nothing that could
// lead out of a directory.
func checkDevice(device string) error {
	ok := device != "" && len(device) <= maxDeviceBytes && device[0] != '.'
	for _, c := range device {
		ok = ok && (c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("!._-", c))
	}
	if !ok {
		return fmt.Errorf("%.100q is no name of a disk", device)
	}
	return nil
}

// Save writes the state so that after any crash the file is the complete old one or
// the complete new one.
func (s *State) Save(stateDir string) error {
	slices.SortFunc(s.Cgroups, func(a, b CgroupState) int { return strings.Compare(a.Cgroup, b.Cgroup) })
	if err := s.check(); err != nil {
		return fmt.Errorf("the state would not be readable again: %w", err)
	}
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return fmt.Errorf("cannot keep the original settings: %w", err)
	}
	if text = append(text, '\n'); len(text) > maxStateBytes {
		return fmt.Errorf("cannot keep the original settings: the state of %d cgroups would have %d bytes, and %d are possible; "+
			"let the configuration name fewer cgroups", len(s.Cgroups), len(text), maxStateBytes)
	}
	if err := atomicfile.Replace(StatePath(stateDir, s.Device), text); err != nil {
		return fmt.Errorf("cannot keep the original settings: %w; make room or choose another state_dir", err)
	}
	return nil
}

// Remove deletes the state after all is restored.
func (s *State) Remove(stateDir string) error {
	err := os.Remove(StatePath(stateDir, s.Device))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the state: %w", err)
	}
	if err := removeWritten(stateDir, s.Device); err != nil {
		return fmt.Errorf("cannot remove the record of written weights: %w", err)
	}
	return atomicfile.SyncDirectory(stateDir)
}

// bootID is the ID of the present boot.
func bootID() string {
	id, err := kernel.BootID()
	if err != nil {
		return ""
	}
	return id
}
