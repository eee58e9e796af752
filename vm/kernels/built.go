package kernels

import (
	"fmt"
	"path/filepath"
	"strings"
)

// A built kernel is built on this host from the source of a pinned kernel, with a
// configuration of the folder built: one that finds faults, or that has ext4 built in.
// Its name is the pinned kernel's, a plus, and the configuration's: 6.1+debug. builtBy
// builds it and puts it into the cache. It is never fetched, and tests use it only if it
// is named.
const builtBy = "vm/kernels/built/build"

// built returns the built kernel of that configuration, from the source of p.
func (p Pin) built(configuration string) (Pin, error) {
	name := p.Name + "+" + configuration
	if configuration == "" || !plainName.MatchString(name) {
		return Pin{}, fmt.Errorf("%q is not a kernel's name, a plus and a configuration of %s, as %s+debug", name, builtBy, p.Name)
	}
	upstream, _, _ := strings.Cut(p.Version, "-")
	p.of, p.Name, p.Release = p.Name, name, upstream+"+"+configuration
	return p, nil
}

// builtDir is the directory of a built kernel, its modules and its headers, with
// the layout of Debian's unpacked packages.
func (s Store) builtDir(pin Pin) string {
	return filepath.Join(s.Dir, "built", pin.Name, pin.Release)
}
