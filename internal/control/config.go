package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

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
	// CorrectLimits lowers write limits by the I/O that escapes them.
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
// made: beyond it, looking at all of them costs more than it mends.
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

// document is the file as written.
type document struct {
	Interval   yaml.Node `yaml:"interval"`
	Device     string    `yaml:"device"`
	Devices    []string  `yaml:"devices"`
	Actuator   string    `yaml:"actuator"`
	Law        string    `yaml:"law"`
	StateDir   string    `yaml:"state_dir"`
	Tunables   yaml.Node `yaml:"tunables"`
	Limits     string    `yaml:"limits"`
	Containers []struct {
		Match  yaml.Node `yaml:"match"`
		Weight yaml.Node `yaml:"weight"`
	} `yaml:"containers"`
}

// ReadConfig reads a configuration. name is for messages, which also give the
// line. Weights are checked against the weight file's range by CheckWeights,
// when the file is known.
func ReadConfig(input io.Reader, name string) (Config, error) {
	text, err := io.ReadAll(io.LimitReader(input, maxConfigBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("cannot read configuration %s: %w", name, err)
	}
	if len(text) > maxConfigBytes {
		return Config{}, fmt.Errorf("configuration %s: larger than %d bytes", name, maxConfigBytes)
	}
	config, err := parseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", name, err)
	}
	return config, nil
}

func parseConfig(text []byte) (Config, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var file document
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, plainYAMLError(err)
	} else if err == nil {
		if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
			return Config{}, errors.New("more than one document: want one, without ---")
		}
	}
	return file.config()
}

// plainYAMLError says it in the words of the file's writer, not of Go types.
func plainYAMLError(err error) error {
	var typeErrors *yaml.TypeError
	if !errors.As(err, &typeErrors) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	lines := make([]string, len(typeErrors.Errors))
	for n, e := range typeErrors.Errors {
		text := fmt.Sprint(e)
		if field, _, unknown := strings.Cut(text, " not found in type "); unknown {
			text = strings.Replace(field, ": field ", ": unknown key ", 1) +
				" (known: interval, devices, device, actuator, law, state_dir, tunables, limits, containers; of a container: match, weight)"
		}
		if at, what, mistyped := strings.Cut(text, ": cannot unmarshal !!"); mistyped {
			kind, rest, _ := strings.Cut(what, " into ")
			kind, value, _ := strings.Cut(kind, " ")
			text = fmt.Sprintf("%s: did not expect %s here %s", at, yamlKind(kind), value)
			if rest == "control.document" {
				text += "; want keys such as interval: 5s"
			}
		}
		lines[n] = strings.TrimSpace(text)
	}
	return errors.New(strings.Join(lines, "; "))
}

func yamlKind(tag string) string {
	switch tag {
	case "seq":
		return "a list"
	case "map":
		return "a mapping"
	default:
		return "the value"
	}
}

func (file document) config() (Config, error) {
	config := DefaultConfig()
	if !file.Interval.IsZero() {
		interval, err := ParseInterval(file.Interval.Value)
		if err != nil {
			return Config{}, fmt.Errorf("line %d: interval: %w", file.Interval.Line, err)
		}
		config.Interval = interval
	}
	var err error
	if config.Devices, err = readDevices(file.Device, file.Devices); err != nil {
		return Config{}, err
	}
	if file.Actuator != "" {
		if err := CheckActuator(file.Actuator); err != nil {
			return Config{}, fmt.Errorf("actuator: %w", err)
		}
		config.Actuator = file.Actuator
	}
	if file.Law != "" {
		if _, err := NewLaw(file.Law, BFQRange); err != nil {
			return Config{}, fmt.Errorf("law: %w", err)
		}
		config.Law = file.Law
	}
	if file.StateDir != "" {
		if err := CheckStateDir(file.StateDir); err != nil {
			return Config{}, fmt.Errorf("state_dir: %w", err)
		}
		config.StateDir = filepath.Clean(file.StateDir)
	}
	if config.Tunables, err = readTunables(file.Tunables); err != nil {
		return Config{}, err
	}
	if config.CorrectLimits, err = choice("limits", file.Limits, "correct", "keep", true); err != nil {
		return Config{}, err
	}
	if len(file.Containers) > maxRules {
		return Config{}, fmt.Errorf("%d containers: want at most %d", len(file.Containers), maxRules)
	}
	for n, entry := range file.Containers {
		rule, err := readRule(n, entry.Match, entry.Weight)
		if err != nil {
			return Config{}, err
		}
		config.Containers = append(config.Containers, rule)
	}
	return config, nil
}

// readDevices takes either of the two keys.
func readDevices(device string, devices []string) ([]string, error) {
	if device != "" && len(devices) > 0 {
		return nil, errors.New("device and devices: want one of the two; devices takes a list, such as [sda, sdb]")
	}
	if device != "" {
		devices = []string{device}
	}
	if len(devices) > maxDisks {
		return nil, fmt.Errorf("devices: %d disks; want at most %d", len(devices), maxDisks)
	}
	for n, name := range devices {
		if name == "" || strings.ContainsAny(name, "\x00\n") {
			return nil, fmt.Errorf("devices: %q is not a name", name)
		}
		if slices.Contains(devices[:n], name) {
			return nil, fmt.Errorf("devices: %q is there twice", name)
		}
	}
	return devices, nil
}

func choice(key, value, yes, no string, unsaid bool) (bool, error) {
	switch value {
	case "":
		return unsaid, nil
	case yes:
		return true, nil
	case no:
		return false, nil
	}
	return false, fmt.Errorf("%s: %q: want %s or %s", key, value, no, yes)
}

func readRule(n int, match, weight yaml.Node) (Rule, error) {
	if match.IsZero() || match.Kind != yaml.ScalarNode || match.Value == "" {
		return Rule{}, fmt.Errorf("%scontainer %d: want match: with a pattern for cgroup path or container name", lineOf(match, weight), n+1)
	}
	rule := Rule{Match: match.Value, line: match.Line}
	if len(rule.Match) > maxMatchBytes {
		return Rule{}, fmt.Errorf("line %d: match: longer than %d bytes", rule.line, maxMatchBytes)
	}
	if _, err := path.Match(rule.Match, ""); err != nil {
		return Rule{}, fmt.Errorf("line %d: match: %q is no pattern: an opening [ wants its ]", rule.line, rule.Match)
	}
	if weight.IsZero() {
		return rule, nil
	}
	rule.line = weight.Line
	var err error
	rule.Weight, err = strconv.ParseUint(weight.Value, 10, 64)
	if err != nil || rule.Weight < 1 || rule.Weight > maxWeight {
		return Rule{}, fmt.Errorf("line %d: weight of %s: %q: want a whole number from 1 (leave weight out to keep the one found)",
			weight.Line, rule.Match, weight.Value)
	}
	return rule, nil
}

func lineOf(nodes ...yaml.Node) string {
	for _, node := range nodes {
		if node.Line > 0 {
			return fmt.Sprintf("line %d: ", node.Line)
		}
	}
	return ""
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

// CheckStateDir refuses a directory that would depend on where one stands.
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
