package control

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/account"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/control/law"
)

// Config is what the operator wants; see docs/control.md for the file.
type Config struct {
	// Interval is the time over which measured shares are to match the ideal ones,
	// MinInterval to MaxInterval. Step says how often weights are corrected.
	Interval time.Duration
	// Devices are the disks, in any form that blockdev.Lookup takes; none if
	// the command line names them.
	Devices []string
	// Actuator is ActuatorAuto, ActuatorWeights or ActuatorLimits.
	Actuator string
	// Law is PaperLaw or FeedbackLaw.
	Law string
	// StateDir is absolute; the original settings are kept there.
	StateDir string
	// Tunables of the disk's scheduler that are set while control runs, by name. Of
	// those not named, control sets what its weights need with AutoTunables, and else
	// none.
	Tunables     map[string]uint64
	AutoTunables bool
	// Metadata is MetadataAuto, MetadataEarly or MetadataKernel.
	Metadata string
	// CorrectLimits reduces write limits by the I/O that escapes them.
	CorrectLimits bool
	// Containers says which containers to control; the first rule that matches
	// counts. With none, control keeps the weights found, for every cgroup that
	// does I/O on the device.
	Containers []Rule
}

// The means that enforce the shares.
const (
	// ActuatorAuto uses weights. It uses limits while the disk's scheduler knows no
	// weights or does not follow them.
	ActuatorAuto    = "auto"
	ActuatorWeights = account.ActuatorWeights
	ActuatorLimits  = account.ActuatorLimits
)

// CheckActuator rejects an unknown actuator.
func CheckActuator(text string) error {
	switch text {
	case ActuatorAuto, ActuatorWeights, ActuatorLimits:
		return nil
	}
	return fmt.Errorf("%q: want %s, %s or %s", text, ActuatorAuto, ActuatorWeights, ActuatorLimits)
}

// stepsPerInterval is how often the feedback law measures and corrects within an
// interval.
const stepsPerInterval = 10

// MinStep is the shortest time between two corrections. It spans some slices of the
// scheduler: a shorter step would measure single slices, and not the shares.
const MinStep = 500 * time.Millisecond

// Step is the time between two corrections. The paper's law makes one in each
// interval. The feedback law remembers seconds, and makes several corrections,
// MinStep or more apart. jbd2 writes for a few seconds and then pauses for a few: a
// law that answers once in that time always answers the part that is over.
func (c Config) Step() time.Duration {
	if c.Law != law.FeedbackLaw {
		return c.Interval
	}
	return max(MinStep, c.Interval/stepsPerInterval)
}

// maxStepped is the largest number of containers on the device with more than one
// step in an interval. With more containers, measuring all of them costs more than
// the steps gain.
const maxStepped = 128

// stepFor returns Step, or the whole interval for more than maxStepped containers.
func (c Config) stepFor(containers int) time.Duration {
	if containers > maxStepped {
		return c.Interval
	}
	return c.Step()
}

// Rule matches containers and gives them a weight.
type Rule struct {
	// Match is a pattern as of [container.Matches], for the cgroup's path below the mount
	// point or the container's name.
	Match string
	// Weight is the ideal weight; 0 means the weight found.
	Weight uint64
	line   int
}

// Bounds and defaults of the configuration.
const (
	DefaultInterval = 5 * time.Second
	MinInterval     = time.Second
	MaxInterval     = time.Hour
	DefaultStateDir = "/var/lib/daybook"

	maxRules      = 10_000
	maxDisks      = 1000
	maxMatchBytes = 4096
)

// DefaultConfig is the configuration of an empty file.
func DefaultConfig() Config {
	return Config{Interval: DefaultInterval, Actuator: ActuatorAuto, Law: law.FeedbackLaw, Metadata: MetadataAuto, StateDir: DefaultStateDir, AutoTunables: true, CorrectLimits: true}
}

// ParseInterval reads and bounds an interval such as "5s".
func ParseInterval(text string) (time.Duration, error) {
	interval, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: write it with its unit, such as 5s", text)
	}
	return interval, CheckInterval(interval)
}

// CheckInterval rejects an interval that is too short or too long.
func CheckInterval(interval time.Duration) error {
	if interval < MinInterval || interval > MaxInterval {
		return fmt.Errorf("%v: want %v to %v (jbd2 commits every 5s)", interval, MinInterval, MaxInterval)
	}
	return nil
}

// CheckStateDir rejects a directory that would depend on the working directory.
func CheckStateDir(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return fmt.Errorf("%q: want an absolute path, such as %s", dir, DefaultStateDir)
	}
	return nil
}

// CheckWeights rejects weights that the weight file does not accept.
func (c Config) CheckWeights(file string, r law.Range) error {
	for _, rule := range c.Containers {
		if rule.Weight != 0 && !r.Holds(rule.Weight) {
			return fmt.Errorf("configuration line %d: weight of %s: %d: %s takes %d to %d",
				rule.line, rule.Match, rule.Weight, file, r.Min, r.Max)
		}
	}
	return nil
}

// Ideal finds the rule for a cgroup or container name. A weight of 0 means the
// weight found.
func (c Config) Ideal(cgroup, name string) (weight uint64, matched bool) {
	for _, rule := range c.Containers {
		if container.Matches(rule.Match, cgroup) || name != "" && container.Matches(rule.Match, name) {
			return rule.Weight, true
		}
	}
	return 0, len(c.Containers) == 0
}
