package control

import (
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybook-project/daybook/internal/account"
)

// Config is what the operator wants; see docs/control.md for the file.
type Config struct {
	// Interval over which shares are to come true, MinInterval to
	// MaxInterval; Step says when weights are corrected.
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
	// Tunables of the disk's scheduler to hold while in control, by name;
	// those not named are left alone.
	Tunables map[string]uint64
	// CorrectLimits reduces write limits by the I/O that escapes them.
	CorrectLimits bool
	// Containers says whom to control; the first rule that matches counts.
	// None: every cgroup that does I/O on the device, at the weight found.
	Containers []Rule
}

// What holds the shares.
const (
	// ActuatorAuto is weights, and limits as long as the disk's scheduler knows
	// no weights or does not follow them.
	ActuatorAuto    = "auto"
	ActuatorWeights = account.ActuatorWeights
	ActuatorLimits  = account.ActuatorLimits
)

// CheckActuator refuses what is none.
func CheckActuator(text string) error {
	switch text {
	case ActuatorAuto, ActuatorWeights, ActuatorLimits:
		return nil
	}
	return fmt.Errorf("%q: want %s, %s or %s", text, ActuatorAuto, ActuatorWeights, ActuatorLimits)
}

// stepsPerInterval is how often the feedback law looks and corrects within an
// interval.
const stepsPerInterval = 10

// MinStep is the shortest time between two corrections: some slices of the
// scheduler, or a step measures them and not the shares.
const MinStep = 500 * time.Millisecond

// Step is the time between two corrections. The paper's law makes one each
// interval. The feedback law has memories in seconds, and makes several, not
// closer than MinStep: jbd2 writes for a few seconds and rests for a few,
// and who answers only afterwards always answers the wrong half.
func (c Config) Step() time.Duration {
	if c.Law != FeedbackLaw {
		return c.Interval
	}
	return max(MinStep, c.Interval/stepsPerInterval)
}

// maxStepped is the number of containers on the device up to which steps are
// made: beyond it, looking at all of them costs more than it corrects.
const maxStepped = 128

// stepFor is Step, or the whole interval for that many containers.
func (c Config) stepFor(containers int) time.Duration {
	if containers > maxStepped {
		return c.Interval
	}
	return c.Step()
}

// Rule chooses containers and gives them a weight.
type Rule struct {
	// Match is a pattern as of path.Match ("*" does not cross "/"), for the
	// cgroup's path below the mount point or the container's name.
	Match string
	// Weight is the ideal weight; 0: as found.
	Weight uint64
	line   int
}

// Bounds and defaults of the configuration.
const (
	DefaultInterval = 5 * time.Second
	MinInterval     = time.Second
	MaxInterval     = time.Hour
	DefaultStateDir = "/var/lib/daybook"

	maxConfigBytes = 1 << 20
	maxRules       = 10_000
	maxDisks       = 1000
	maxMatchBytes  = 4096
)

// DefaultConfig is what an empty file means.
func DefaultConfig() Config {
	return Config{Interval: DefaultInterval, Actuator: ActuatorAuto, Law: FeedbackLaw, StateDir: DefaultStateDir, CorrectLimits: true}
}

// ParseInterval reads and bounds an interval such as "5s".
func ParseInterval(text string) (time.Duration, error) {
	interval, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: write it with its unit, such as 5s", text)
	}
	return interval, CheckInterval(interval)
}

// CheckInterval refuses what cannot be controlled by.
func CheckInterval(interval time.Duration) error {
	if interval < MinInterval || interval > MaxInterval {
		return fmt.Errorf("%v: want %v to %v (jbd2 commits every 5s)", interval, MinInterval, MaxInterval)
	}
	return nil
}

// CheckStateDir refuses a directory that would depend on the working directory.
func CheckStateDir(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return fmt.Errorf("%q: want an absolute path, such as %s", dir, DefaultStateDir)
	}
	return nil
}

// CheckWeights refuses weights that the weight file would refuse.
func (c Config) CheckWeights(file string, r Range) error {
	for _, rule := range c.Containers {
		if rule.Weight != 0 && !r.Holds(rule.Weight) {
			return fmt.Errorf("configuration line %d: weight of %s: %d: %s takes %d to %d",
				rule.line, rule.Match, rule.Weight, file, r.Min, r.Max)
		}
	}
	return nil
}

// Ideal finds the rule for a cgroup or container name. weight 0: as found.
func (c Config) Ideal(cgroup, name string) (weight uint64, matched bool) {
	for _, rule := range c.Containers {
		if matches(rule.Match, cgroup) || name != "" && matches(rule.Match, name) {
			return rule.Weight, true
		}
	}
	return 0, len(c.Containers) == 0
}

func matches(pattern, text string) bool {
	ok, err := path.Match(pattern, text)
	return ok && err == nil && len(text) <= math.MaxUint16
}
