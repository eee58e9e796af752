package control

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/control/law"
)

// ConfigError is all that is wrong with a configuration, in the order of the lines.
type ConfigError = configfile.Error

// Problem is one thing that is wrong with a configuration, or worth knowing.
type Problem = configfile.Problem

// document is the file as written. Its values are read one by one, each with its line.
type document struct {
	Interval   yaml.Node       `yaml:"interval"`
	Device     yaml.Node       `yaml:"device"`
	Devices    yaml.Node       `yaml:"devices"`
	Actuator   yaml.Node       `yaml:"actuator"`
	Law        yaml.Node       `yaml:"law"`
	StateDir   yaml.Node       `yaml:"state_dir"`
	Tunables   yaml.Node       `yaml:"tunables"`
	Limits     yaml.Node       `yaml:"limits"`
	Metadata   yaml.Node       `yaml:"metadata"`
	Containers []containerNode `yaml:"containers"`
}

type containerNode struct {
	Match  yaml.Node `yaml:"match"`
	Weight yaml.Node `yaml:"weight"`
}

// ReadConfig reads a configuration. name is for messages. The error is a
// *ConfigError with all problems, unless the input cannot be read. CheckWeights
// checks weights against the range of the weight file, when the file is known.
func ReadConfig(input io.Reader, name string) (Config, error) {
	text, err := configfile.ReadAll(input, name)
	if err != nil {
		return Config{}, err
	}
	config, problems := parseConfig(text)
	if len(problems) > 0 {
		return Config{}, &ConfigError{Name: name, Problems: problems}
	}
	return config, nil
}

// knownKeys are listed where a key is unknown.
const knownKeys = "interval, devices, device, actuator, law, state_dir, tunables, limits, metadata, containers; of a container: match, weight"

// parseConfig gives the configuration, or all that is wrong with it.
func parseConfig(text []byte) (Config, []Problem) {
	var r configReader
	var file document
	if !r.Decode(text, &file, knownKeys, "interval: 5s") {
		return Config{}, r.Problems
	}
	config := r.config(file)
	r.Sort()
	return config, r.Problems
}

// ReadSection reads a configuration that is a section of another file. Its problems have
// the lines of that file.
func ReadSection(node yaml.Node) (Config, []Problem) {
	var r configReader
	var file document
	if !r.DecodeNode(node, &file, knownKeys) {
		return Config{}, r.Problems
	}
	config := r.config(file)
	r.Sort()
	return config, r.Problems
}

// configReader reads the values of a document, and goes on after one that is wrong.
type configReader struct{ configfile.Reader }

func (r *configReader) config(file document) Config {
	config := DefaultConfig()
	if !file.Interval.IsZero() {
		node := configfile.Resolve(file.Interval)
		interval, err := ParseInterval(node.Value)
		switch {
		case node.Kind != yaml.ScalarNode:
			r.Refuse(node.Line, "interval: did not expect %s here; want a duration, such as 5s", configfile.KindOf(node))
		case err != nil:
			r.Refuse(node.Line, "interval: %v", err)
		}
		config.Interval = interval
	}
	config.Devices = r.devices(file.Device, file.Devices)
	if text, line := r.Scalar(file.Actuator); text != "" {
		if err := CheckActuator(text); err != nil {
			r.Refuse(line, "actuator: %v", err)
		}
		config.Actuator = text
	}
	if text, line := r.Scalar(file.Law); text != "" {
		if _, err := law.NewLaw(text, law.BFQRange); err != nil {
			r.Refuse(line, "law: %v", err)
		}
		config.Law = text
	}
	if text, line := r.Scalar(file.StateDir); text != "" {
		if err := CheckStateDir(text); err != nil {
			r.Refuse(line, "state_dir: %v", err)
		}
		config.StateDir = filepath.Clean(text)
	}
	var problems []Problem
	config.Tunables, config.AutoTunables, problems = readTunables(file.Tunables)
	r.Problems = append(r.Problems, problems...)
	switch text, line := r.Scalar(file.Limits); text {
	case "", "correct":
	case "keep":
		config.CorrectLimits = false
	default:
		r.Refuse(line, "limits: %q: want keep or correct", text)
	}
	if text, line := r.Scalar(file.Metadata); text != "" {
		if err := CheckMetadata(text); err != nil {
			r.Refuse(line, "metadata: %v", err)
		}
		config.Metadata = text
	}
	if len(file.Containers) > maxRules {
		r.Refuse(0, "%d containers: want at most %d", len(file.Containers), maxRules)
		return config
	}
	for n, entry := range file.Containers {
		if rule, ok := r.rule(n, entry.Match, entry.Weight); ok {
			config.Containers = append(config.Containers, rule)
		}
	}
	return config
}

// devices takes either of the two keys.
func (r *configReader) devices(device, devices yaml.Node) []string {
	var names []string
	add := func(key string, node yaml.Node) {
		name, line := r.Scalar(node)
		switch {
		case name == "" && node.Kind != yaml.ScalarNode: // rejected already, as if it were not there
		case name == "" && key == "device": // as if it were not there
		case name == "" || strings.ContainsAny(name, "\x00\n"):
			r.Refuse(line, "%s: %q is not a name", key, name)
		case slices.Contains(names, name):
			r.Refuse(line, "%s: %q is there twice", key, name)
		default:
			names = append(names, name)
		}
	}
	if !device.IsZero() {
		add("device", device)
	}
	one := len(names) > 0
	devices = configfile.Resolve(devices)
	line := devices.Line
	switch {
	case devices.IsZero() || devices.Tag == "!!null":
	case devices.Kind != yaml.SequenceNode:
		r.Refuse(line, "devices: did not expect %s here; want a list, such as [sda, sdb]", configfile.KindOf(devices))
	case len(devices.Content) == 0:
	case one:
		r.Refuse(line, "device and devices: want one of the two; devices takes a list, such as [sda, sdb]")
	case len(devices.Content) > maxDisks:
		r.Refuse(line, "devices: %d disks; want at most %d", len(devices.Content), maxDisks)
	default:
		for _, node := range devices.Content {
			add("devices", *node)
		}
	}
	return names
}

// rule reads the rule of one container; ok is false if it is invalid.
func (r *configReader) rule(n int, match, weight yaml.Node) (rule Rule, ok bool) {
	match, weight = configfile.Resolve(match), configfile.Resolve(weight)
	if match.IsZero() && weight.IsZero() && len(r.Problems) > 0 {
		return Rule{}, false // it is no mapping, which YAML's own error says, or empty
	}
	if match.IsZero() || match.Kind != yaml.ScalarNode || match.Value == "" {
		line := match.Line
		if line == 0 {
			line = weight.Line
		}
		r.Refuse(line, "container %d: want match: with a pattern for cgroup path or container name", n+1)
		return Rule{}, false
	}
	rule = Rule{Match: match.Value, line: match.Line}
	before := len(r.Problems)
	if len(rule.Match) > maxMatchBytes {
		r.Refuse(rule.line, "match: longer than %d bytes", maxMatchBytes)
	} else if container.CheckPattern(rule.Match) != nil {
		r.Refuse(rule.line, "match: %q is no pattern: an opening [ wants its ]", rule.Match)
	}
	if !weight.IsZero() {
		rule.line = weight.Line
		var err error
		rule.Weight, err = strconv.ParseUint(weight.Value, 10, 64)
		if err != nil || rule.Weight < 1 || rule.Weight > law.MaxWeight {
			r.Refuse(weight.Line, "weight of %.100s: %q: want a whole number from 1 (leave weight out to keep the one found)", rule.Match, weight.Value)
		} else if widest := (noWeights{}).Range(); rule.Weight > widest.Max {
			r.Refuse(weight.Line, "weight of %.100s: %d: no weight file takes more than %d", rule.Match, rule.Weight, widest.Max)
		}
	}
	return rule, len(r.Problems) == before
}

// Check returns notes: the rules without effect, and what a host may refuse. CheckWeights
// checks weights against the weight file of one host.
func (c Config) Check() (notes []Problem) {
	if len(c.Devices) == 0 {
		notes = append(notes, Problem{Text: "no devices: name them with --device"})
	}
	for n, rule := range c.Containers {
		if rule.Weight > law.BFQRange.Max {
			notes = append(notes, Problem{Line: rule.line, Text: fmt.Sprintf("weight of %.100s: %d: BFQ takes %d to %d", rule.Match, rule.Weight, law.BFQRange.Min, law.BFQRange.Max)})
		}
		if len(rule.Match) > 1 && strings.HasSuffix(rule.Match, "/") {
			notes = append(notes, Problem{Line: rule.line, Text: fmt.Sprintf("%.100s matches nothing: no path ends in /", rule.Match)})
		}
		for _, earlier := range c.Containers[:n] {
			if covers(earlier.Match, rule.Match) {
				notes = append(notes, Problem{Line: rule.line, Text: fmt.Sprintf("%.100s has no effect: %.100s in line %d matches first", rule.Match, earlier.Match, earlier.line)})
				break
			}
		}
	}
	return notes
}

// covers reports whether a pattern matches whatever the other matches. It may miss that
// for patterns with a ? or [, and for those with a * that is not at the end.
func covers(pattern, other string) bool {
	const meta = `*?[\`
	if pattern == other {
		return true
	}
	if !strings.ContainsAny(other, meta) {
		return container.Matches(pattern, other)
	}
	start, ok := strings.CutSuffix(pattern, "*")
	rest, below := strings.CutPrefix(other, start)
	// A [ may match a /, which the * does not.
	return ok && below && !strings.ContainsAny(start, meta) && !strings.ContainsAny(rest, `/[\`)
}
