package agent

import (
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/configfile"
	"github.com/daybook-project/daybook/internal/control"
	"github.com/daybook-project/daybook/internal/serve/endpoint"
)

// Placements of journals of volumes that one pod uses.
const (
	// PlacePod: in a child of the pod's cgroup.
	PlacePod = "pod"
	// PlaceNeutral: below /daybook, with the pod's weight.
	PlaceNeutral = "neutral"
	// PlaceNone: where Linux has it. The agent only observes.
	PlaceNone = "none"
)

// Config is what the operator wants.
type Config struct {
	// KubeletDir is the kubelet's --root-dir.
	KubeletDir string
	// CRISocket is the socket of the container runtime; "": the first usual one that
	// exists; "none": pods are known by their cgroups alone.
	CRISocket string
	// CgroupRoot is the kubelet's --cgroup-root.
	CgroupRoot string
	// StateDir has the records of what was changed.
	StateDir string
	// Placement is PlacePod, PlaceNeutral or PlaceNone.
	Placement string
	// Interval is the time between two rounds.
	Interval time.Duration
	// Metrics is the address of the metrics, of endpoint.Parse; "": none.
	Metrics string
	// Account says whether I/O is attributed to containers (BPF).
	Account bool
	// Waits says whether the account has the waits for journals, too.
	Waits bool
	// Namespaces are patterns of the namespaces whose pods may choose their weight by
	// annotation.
	Namespaces []string
	// APIServer says whether the API server is asked for the labels of namespaces and
	// the classes of volumes.
	APIServer bool
	// Weights are those of pods by their QoS class; 0 or absent: unchanged.
	Weights map[string]uint64
	// Control is the configuration of the control of disks; nil: none.
	Control *control.Config
}

// Annotation chooses the weight of a pod, 1 to 1000.
const Annotation = "daybook.io/io-weight"

// QoS classes, as they are in the configuration and in metrics.
const (
	Guaranteed = "guaranteed"
	Burstable  = "burstable"
	BestEffort = "besteffort"
)

// NoCRI is the CRISocket of an agent that asks no container runtime.
const NoCRI = "none"

// Bounds of Interval.
const (
	minInterval = 200 * time.Millisecond
	maxInterval = 30 * time.Second
)

const knownKeys = "kubelet_dir, cri_socket, cgroup_root, state_dir, placement, interval, metrics, account, waits, api_server, namespaces, weights, control"

type document struct {
	KubeletDir yaml.Node `yaml:"kubelet_dir"`
	CRISocket  yaml.Node `yaml:"cri_socket"`
	CgroupRoot yaml.Node `yaml:"cgroup_root"`
	StateDir   yaml.Node `yaml:"state_dir"`
	Placement  yaml.Node `yaml:"placement"`
	Interval   yaml.Node `yaml:"interval"`
	Metrics    yaml.Node `yaml:"metrics"`
	Account    yaml.Node `yaml:"account"`
	Waits      yaml.Node `yaml:"waits"`
	APIServer  yaml.Node `yaml:"api_server"`
	Namespaces yaml.Node `yaml:"namespaces"`
	Weights    yaml.Node `yaml:"weights"`
	Control    yaml.Node `yaml:"control"`
}

// DefaultConfig is what an empty file means.
func DefaultConfig() Config {
	return Config{
		KubeletDir: "/var/lib/kubelet", CgroupRoot: "/", StateDir: adopt.DefaultStateDir,
		Placement: PlacePod, Interval: time.Second, Metrics: "127.0.0.1:9435", Account: true,
	}
}

// ReadConfig reads a configuration. name is for messages. The error is a
// *configfile.Error, with all that is wrong, unless the input cannot be read.
func ReadConfig(input io.Reader, name string) (Config, error) {
	text, err := configfile.ReadAll(input, name)
	if err != nil {
		return Config{}, err
	}
	r := reader{config: DefaultConfig()}
	var file document
	if r.Decode(text, &file, knownKeys, "kubelet_dir: /var/lib/kubelet") {
		r.read(file)
	}
	if r.Sort(); len(r.Problems) > 0 {
		return Config{}, &configfile.Error{Name: name, Problems: r.Problems}
	}
	return r.config, nil
}

type reader struct {
	configfile.Reader
	config Config
}

func (r *reader) read(file document) {
	c := &r.config
	r.absolute("kubelet_dir", file.KubeletDir, &c.KubeletDir)
	r.absolute("cgroup_root", file.CgroupRoot, &c.CgroupRoot)
	r.absolute("state_dir", file.StateDir, &c.StateDir)
	if text, _ := r.Scalar(file.CRISocket); text == NoCRI {
		c.CRISocket = NoCRI
	} else if text != "" {
		socket := configfile.Resolve(file.CRISocket)
		socket.Value = strings.TrimPrefix(text, "unix://")
		r.absolute("cri_socket", socket, &c.CRISocket)
	}
	if text, line := r.Scalar(file.Placement); text != "" {
		if c.Placement = text; text != PlacePod && text != PlaceNeutral && text != PlaceNone {
			r.Refuse(line, "placement: %q: want %s, %s or %s", text, PlacePod, PlaceNeutral, PlaceNone)
		}
	}
	if text, line := r.Scalar(file.Interval); text != "" {
		interval, err := time.ParseDuration(text)
		if err != nil || interval < minInterval || interval > maxInterval {
			r.Refuse(line, "interval: %q: want %v to %v, such as 1s", text, minInterval, maxInterval)
		}
		c.Interval = interval
	}
	if !file.Metrics.IsZero() {
		r.metrics(file.Metrics)
	}
	r.truth("account", file.Account, &c.Account)
	r.truth("waits", file.Waits, &c.Waits)
	r.truth("api_server", file.APIServer, &c.APIServer)
	var line int
	c.Namespaces, line = r.Strings(file.Namespaces)
	for _, pattern := range c.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil {
			r.Refuse(line, "namespaces: %q is no pattern: an opening [ wants its ]", pattern)
		}
	}
	r.weights(file.Weights)
	if given := configfile.Resolve(file.Control); !given.IsZero() && given.Tag != "!!null" {
		section, problems := control.ReadSection(file.Control)
		r.Problems = append(r.Problems, problems...)
		if len(problems) == 0 && len(section.Devices) == 0 {
			r.Refuse(file.Control.Line, "control: no devices: want a list, such as devices: [sda]")
		}
		if section.StateDir == control.DefaultStateDir {
			section.StateDir = c.StateDir // in a pod, only this is a directory of the node
		}
		c.Control = &section
	}
	if c.Control != nil && !c.Account {
		r.Refuse(file.Control.Line, "control needs account: true")
	}
	if c.Waits && !c.Account {
		r.Refuse(file.Waits.Line, "waits need account: true")
	}
}

func (r *reader) metrics(node yaml.Node) {
	text, line := r.Scalar(node)
	if r.config.Metrics = text; text == "" {
		return
	}
	address, err := endpoint.Parse(text)
	if err != nil {
		r.Refuse(line, "metrics: %v", err)
	}
	r.config.Metrics = address
}

func (r *reader) truth(key string, node yaml.Node, value *bool) {
	switch text, line := r.Scalar(node); text {
	case "":
	case "true", "false":
		*value = text == "true"
	default:
		r.Refuse(line, "%s: %q: want true or false", key, text)
	}
}

func (r *reader) absolute(key string, node yaml.Node, value *string) {
	text, line := r.Scalar(node)
	if text == "" {
		return
	}
	if !filepath.IsAbs(text) || strings.ContainsAny(text, "\x00\n") {
		r.Refuse(line, "%s: %q: want an absolute path", key, text)
		return
	}
	*value = filepath.Clean(text)
}

// weights reads the weights of the QoS classes.
func (r *reader) weights(node yaml.Node) {
	node = configfile.Resolve(node)
	if node.IsZero() || node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		r.Refuse(node.Line, "weights: want a mapping, such as {%s: 300}", Guaranteed)
		return
	}
	r.config.Weights = map[string]uint64{}
	for n := 0; n+1 < len(node.Content); n += 2 {
		class := node.Content[n]
		switch class.Value {
		case Guaranteed, Burstable, BestEffort:
			r.config.Weights[class.Value] = r.Uint(*node.Content[n+1], fmt.Sprintf("weight of %s pods", class.Value), 1, adopt.MaxWeight)
		default:
			r.Refuse(class.Line, "weights: unknown QoS class %q: want %s, %s or %s", class.Value, Guaranteed, Burstable, BestEffort)
		}
	}
}
