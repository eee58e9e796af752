package kernels

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// PinFile is the path of the pin file in the source tree, for messages.
const PinFile = "vm/kernels/kernels.yaml"

//go:embed kernels.yaml
var pinned []byte

// Part is the purpose of a package.
type Part string

// The parts of a kernel.
const (
	Image   Part = "image"   // the kernel and its modules
	Headers Part = "headers" // the headers for building modules
	Source  Part = "source"  // the tar of the kernel's source, with Debian's patches
	Tools   Part = "tools"   // busybox and programs, if the kernel cannot run the host's
)

// The architectures of kernels, as Go and Debian call them.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// Package is one Debian package of a kernel.
type Package struct {
	Part Part   `yaml:"part"`
	Name string `yaml:"name"`
	// Version of a tool; "" for the other parts, which have that of the pin.
	Version string `yaml:"version,omitempty"`
	SHA256  string `yaml:"sha256"` // of the .deb, 64 hexadecimal digits
}

// Pin is one kernel, pinned.
type Pin struct {
	Name     string    `yaml:"name"`    // the value of --kernel, such as "6.1"
	Release  string    `yaml:"release"` // uname -r
	Version  string    `yaml:"version"` // of all its packages
	Packages []Package `yaml:"packages"`
	// Suite is a release of Debian with the packages, such as "sid", if the host is
	// not configured with it; otherwise "". Such a kernel has an image, a source or
	// both, and no headers: no module is built for it. Guests boot it on request only.
	Suite string `yaml:"suite"`
	// Architecture is [ARM64], or "" for [AMD64]. A kernel for another architecture than
	// amd64 has a suite, tools, and a name that ends with the architecture, as 6.1-arm64.
	Architecture string `yaml:"architecture"`

	of string // of a kernel that is built here: the name of the pinned one
}

// Pins returns the pinned kernels in the order of the pin file: the oldest first.
func Pins() []Pin {
	pins, err := parsePins(pinned)
	if err != nil {
		panic(PinFile + ": " + err.Error()) // a test reads it
	}
	return pins
}

// Arch returns the architecture of the kernel.
func (p Pin) Arch() string { return cmp.Or(p.Architecture, AMD64) }

// Series returns the name without the architecture, such as "6.1".
func (p Pin) Series() string { return strings.TrimSuffix(p.Name, "-"+p.Architecture) }

// Has reports whether a part of the kernel is pinned.
func (p Pin) Has(part Part) bool {
	return slices.ContainsFunc(p.Packages, func(one Package) bool { return one.Part == part })
}

// GuestParts returns the parts that a guest needs.
func (p Pin) GuestParts() []Part {
	parts := []Part{Image}
	if p.Has(Tools) {
		parts = append(parts, Tools)
	}
	return parts
}

// Names returns the names of the kernels that guests boot unless others are requested:
// those of [Pins] that have all parts.
func Names() []string {
	return names(func(p Pin) bool { return p.Suite == "" })
}

// Foreign returns the names of the kernels for other architectures than amd64. Guests boot
// them emulated, on request only.
func Foreign() []string {
	return names(func(p Pin) bool { return p.Architecture != "" })
}

// Bootable returns the names of all kernels that guests can boot: those of [Pins] with an image.
func Bootable() []string {
	return names(func(p Pin) bool { return p.Has(Image) })
}

func names(wanted func(Pin) bool) []string {
	var names []string
	for _, pin := range Pins() {
		if wanted(pin) {
			names = append(names, pin.Name)
		}
	}
	return names
}

// Find returns the pin of a name. The error lists the existing names.
func Find(name string) (Pin, error) {
	pins := Pins()
	name, configuration, built := strings.Cut(name, "+")
	at := slices.IndexFunc(pins, func(p Pin) bool { return p.Name == name })
	if at < 0 {
		return Pin{}, fmt.Errorf("%q is not a kernel that is pinned in %s: want %s", name, PinFile, strings.Join(Bootable(), " or "))
	}
	if built {
		return pins[at].built(configuration)
	}
	return pins[at], nil
}

// Valid file names and arguments of apt.
var (
	plainName    = regexp.MustCompile(`^[a-z0-9][a-z0-9.+~-]*$`)
	plainVersion = regexp.MustCompile(`^([0-9]+:)?[a-z0-9][a-z0-9.+~-]*$`)
	plainHash    = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func parsePins(text []byte) ([]Pin, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var pins []Pin
	if err := decoder.Decode(&pins); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(pins) == 0 {
		return nil, errors.New("no kernel is pinned")
	}
	seen := make(map[string]bool)
	for _, pin := range pins {
		for _, s := range []string{pin.Name, pin.Release, pin.Version} {
			if !plainName.MatchString(s) {
				return nil, fmt.Errorf("kernel %q: %q is not a name, release or version of Debian", pin.Name, s)
			}
		}
		if seen[pin.Name] {
			return nil, fmt.Errorf("kernel %q is pinned twice", pin.Name)
		}
		seen[pin.Name] = true
		have := make(map[Part]bool)
		for _, p := range pin.Packages {
			if !slices.Contains([]Part{Image, Headers, Source, Tools}, p.Part) {
				return nil, fmt.Errorf("kernel %q: %q is not a part: want image, headers, source or tools", pin.Name, p.Part)
			}
			if (p.Part == Tools) != plainVersion.MatchString(p.Version) {
				return nil, fmt.Errorf("kernel %q: package %q with version %q: want a version of Debian for a tool, and none for another part", pin.Name, p.Name, p.Version)
			}
			if !plainName.MatchString(p.Name) || !plainHash.MatchString(p.SHA256) {
				return nil, fmt.Errorf("kernel %q: package %q with sha256 %q: want a package name and 64 hexadecimal digits", pin.Name, p.Name, p.SHA256)
			}
			have[p.Part] = true
		}
		foreign := pin.Architecture != ""
		if foreign && (pin.Architecture != ARM64 || pin.Suite == "" || !strings.HasSuffix(pin.Name, "-"+ARM64)) || foreign != have[Tools] {
			return nil, fmt.Errorf("kernel %q of architecture %q: want none, or %s with a suite, tools and a name that ends with -%s", pin.Name, pin.Architecture, ARM64, ARM64)
		}
		wanted := []Part{Image, Headers, Source}
		if pin.Suite != "" {
			if !plainName.MatchString(pin.Suite) || have[Headers] || len(have) == 0 {
				return nil, fmt.Errorf("kernel %q of suite %q: want a suite of Debian, such as sid, and an image or the source, without headers", pin.Name, pin.Suite)
			}
			wanted = nil
		}
		for _, part := range wanted {
			if !have[part] {
				return nil, fmt.Errorf("kernel %q has no package for its %s", pin.Name, part)
			}
		}
	}
	return pins, nil
}

// FormatPins writes the pin file.
func FormatPins(pins []Pin) []byte {
	var out bytes.Buffer
	out.WriteString(`# The Debian kernels that guests boot, and what builds modules for them. Each
# package is pinned to one version and checked by its SHA-256. Written by
# "bin/daybook-vm pin"; see docs/vm.md.
`)
	for _, pin := range pins {
		fmt.Fprintf(&out, "\n- name: %q\n  release: %s\n  version: %s\n", pin.Name, pin.Release, pin.Version)
		if pin.Suite != "" {
			fmt.Fprintf(&out, "  suite: %s\n", pin.Suite)
		}
		if pin.Architecture != "" {
			fmt.Fprintf(&out, "  architecture: %s\n", pin.Architecture)
		}
		out.WriteString("  packages:\n")
		for _, p := range pin.Packages {
			fmt.Fprintf(&out, "    - part: %s\n      name: %s\n", p.Part, p.Name)
			if p.Version != "" {
				fmt.Fprintf(&out, "      version: %q\n", p.Version)
			}
			fmt.Fprintf(&out, "      sha256: %s\n", p.SHA256)
		}
	}
	return out.Bytes()
}
