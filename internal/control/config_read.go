package control

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigError lists all problems of a configuration, in the order of the lines.
type ConfigError struct {
	// Name is the file's.
	Name     string
	Problems []Problem
}

// Problem is one error in a configuration, or a warning.
type Problem struct {
	// Line counts from 1; 0 is the file as a whole.
	Line int
	Text string
}

// String is the text, after the line if there is one.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Text
	}
	return fmt.Sprintf("line %d: %s", p.Line, p.Text)
}

func (e *ConfigError) Error() string {
	texts := make([]string, len(e.Problems))
	for n, p := range e.Problems {
		texts[n] = p.String()
	}
	return "configuration " + e.Name + ": " + strings.Join(texts, "; ")
}

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
	text, err := io.ReadAll(io.LimitReader(input, maxConfigBytes+1))
	if err != nil {
		return Config{}, fmt.Errorf("cannot read configuration %s: %w", name, err)
	}
	if len(text) > maxConfigBytes {
		return Config{}, &ConfigError{Name: name, Problems: []Problem{{Text: fmt.Sprintf("larger than %d bytes", maxConfigBytes)}}}
	}
	config, problems := parseConfig(text)
	if len(problems) > 0 {
		return Config{}, &ConfigError{Name: name, Problems: problems}
	}
	return config, nil
}

// parseConfig returns the configuration, or all its problems.
func parseConfig(text []byte) (Config, []Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var r configReader
	var file document
	switch err := decoder.Decode(&file); {
	case errors.Is(err, io.EOF):
	case err != nil:
		var mistyped *yaml.TypeError
		r.problems = yamlProblems(err)
		if !errors.As(err, &mistyped) {
			return Config{}, r.problems // no YAML: there is nothing else to read
		}
	default:
		if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
			r.problems = append(r.problems, Problem{Text: "more than one document: want one, without ---"})
		}
	}
	config := r.config(file)
	slices.SortStableFunc(r.problems, func(a, b Problem) int { return a.Line - b.Line })
	return config, r.problems
}

// yamlProblems replaces the names of Go types in errors of the YAML parser.
func yamlProblems(err error) []Problem {
	texts := []string{strings.TrimPrefix(err.Error(), "yaml: ")}
	var mistyped *yaml.TypeError
	if errors.As(err, &mistyped) {
		texts = nil
		for _, e := range mistyped.Errors {
			texts = append(texts, fmt.Sprint(e))
		}
	}
	var problems []Problem
	for _, text := range texts {
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
		problems = append(problems, problemOf(strings.TrimSpace(text)))
	}
	return problems
}

// problemOf splits "line 3: text".
func problemOf(text string) Problem {
	if at, rest, found := strings.Cut(text, ": "); found {
		if digits, isLine := strings.CutPrefix(at, "line "); isLine {
			if line, err := strconv.Atoi(digits); err == nil {
				return Problem{Line: line, Text: rest}
			}
		}
	}
	return Problem{Text: text}
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

// configReader reads the values of a document, and continues after an invalid one.
type configReader struct{ problems []Problem }

func (r *configReader) refuse(line int, format string, values ...any) {
	r.problems = append(r.problems, Problem{Line: line, Text: fmt.Sprintf(format, values...)})
}

// scalar returns the value of a key; "" if the key is missing or has more than a
// single value.
func (r *configReader) scalar(node yaml.Node) (value string, line int) {
	line = node.Line
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		node = *node.Alias
	}
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag != "!!null":
		return node.Value, line
	case node.Kind == yaml.SequenceNode || node.Kind == yaml.MappingNode:
		r.refuse(line, "did not expect %s here", yamlKind(strings.TrimPrefix(node.ShortTag(), "!!")))
	}
	return "", line
}

func (r *configReader) config(file document) Config {
	config := DefaultConfig()
	if !file.Interval.IsZero() {
		interval, err := ParseInterval(file.Interval.Value)
		if err != nil {
			r.refuse(file.Interval.Line, "interval: %v", err)
		}
		config.Interval = interval
	}
	config.Devices = r.devices(file.Device, file.Devices)
	if text, line := r.scalar(file.Actuator); text != "" {
		if err := CheckActuator(text); err != nil {
			r.refuse(line, "actuator: %v", err)
		}
		config.Actuator = text
	}
	if text, line := r.scalar(file.Law); text != "" {
		if _, err := NewLaw(text, BFQRange); err != nil {
			r.refuse(line, "law: %v", err)
		}
		config.Law = text
	}
	if text, line := r.scalar(file.StateDir); text != "" {
		if err := CheckStateDir(text); err != nil {
			r.refuse(line, "state_dir: %v", err)
		}
		config.StateDir = filepath.Clean(text)
	}
	var problems []Problem
	config.Tunables, problems = readTunables(file.Tunables)
	r.problems = append(r.problems, problems...)
	switch text, line := r.scalar(file.Limits); text {
	case "", "correct":
	case "keep":
		config.CorrectLimits = false
	default:
		r.refuse(line, "limits: %q: want keep or correct", text)
	}
	if len(file.Containers) > maxRules {
		r.refuse(0, "%d containers: want at most %d", len(file.Containers), maxRules)
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
		name, line := r.scalar(node)
		switch {
		case name == "" && node.Kind != yaml.ScalarNode: // rejected already, as if it were not there
		case name == "" && key == "device": // as if it were not there
		case name == "" || strings.ContainsAny(name, "\x00\n"):
			r.refuse(line, "%s: %q is not a name", key, name)
		case slices.Contains(names, name):
			r.refuse(line, "%s: %q is there twice", key, name)
		default:
			names = append(names, name)
		}
	}
	if !device.IsZero() {
		add("device", device)
	}
	one := len(names) > 0
	line := devices.Line
	if devices.Kind == yaml.AliasNode && devices.Alias != nil {
		devices = *devices.Alias
	}
	switch {
	case devices.IsZero() || devices.Tag == "!!null":
	case devices.Kind != yaml.SequenceNode:
		r.refuse(line, "devices: did not expect %s here; want a list, such as [sda, sdb]", yamlKind(strings.TrimPrefix(devices.ShortTag(), "!!")))
	case len(devices.Content) == 0:
	case one:
		r.refuse(line, "device and devices: want one of the two; devices takes a list, such as [sda, sdb]")
	case len(devices.Content) > maxDisks:
		r.refuse(line, "devices: %d disks; want at most %d", len(devices.Content), maxDisks)
	default:
		for _, node := range devices.Content {
			add("devices", *node)
		}
	}
	return names
}

// rule reads the rule of one container; ok is false if it is invalid.
func (r *configReader) rule(n int, match, weight yaml.Node) (rule Rule, ok bool) {
	if match.IsZero() && weight.IsZero() && len(r.problems) > 0 {
		return Rule{}, false // it is no mapping, which YAML's own error says, or empty
	}
	if match.IsZero() || match.Kind != yaml.ScalarNode || match.Value == "" {
		line := match.Line
		if line == 0 {
			line = weight.Line
		}
		r.refuse(line, "container %d: want match: with a pattern for cgroup path or container name", n+1)
		return Rule{}, false
	}
	rule = Rule{Match: match.Value, line: match.Line}
	before := len(r.problems)
	if len(rule.Match) > maxMatchBytes {
		r.refuse(rule.line, "match: longer than %d bytes", maxMatchBytes)
	} else if _, err := path.Match(rule.Match, ""); err != nil {
		r.refuse(rule.line, "match: %q is no pattern: an opening [ wants its ]", rule.Match)
	}
	if !weight.IsZero() {
		rule.line = weight.Line
		var err error
		rule.Weight, err = strconv.ParseUint(weight.Value, 10, 64)
		if err != nil || rule.Weight < 1 || rule.Weight > maxWeight {
			r.refuse(weight.Line, "weight of %.100s: %q: want a whole number from 1 (leave weight out to keep the one found)", rule.Match, weight.Value)
		}
	}
	return rule, len(r.problems) == before
}

// Check returns the rules' problems that are the same on every host, and the rules
// without effect. CheckWeights checks weights against the weight file of one host.
func (c Config) Check() (wrong, notes []Problem) {
	if len(c.Devices) == 0 {
		notes = append(notes, Problem{Text: "no devices: name them with --device"})
	}
	widest := noWeights{}.Range()
	for n, rule := range c.Containers {
		switch {
		case rule.Weight > widest.Max:
			wrong = append(wrong, Problem{rule.line, fmt.Sprintf("weight of %.100s: %d: no weight file takes more than %d", rule.Match, rule.Weight, widest.Max)})
		case rule.Weight > BFQRange.Max:
			notes = append(notes, Problem{rule.line, fmt.Sprintf("weight of %.100s: %d: BFQ takes %d to %d", rule.Match, rule.Weight, BFQRange.Min, BFQRange.Max)})
		}
		if len(rule.Match) > 1 && strings.HasSuffix(rule.Match, "/") {
			notes = append(notes, Problem{rule.line, fmt.Sprintf("%.100s matches nothing: no path ends in /", rule.Match)})
		}
		for _, earlier := range c.Containers[:n] {
			if earlier.Match == rule.Match || !strings.ContainsAny(rule.Match, `*?[\`) && matches(earlier.Match, rule.Match) {
				notes = append(notes, Problem{rule.line, fmt.Sprintf("%.100s has no effect: %.100s in line %d matches first", rule.Match, earlier.Match, earlier.line)})
				break
			}
		}
	}
	return wrong, notes
}
