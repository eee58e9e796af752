package kernels

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Besides those of Debian there may be kernels that were built here, of the source
// of a pinned one, with a configuration that finds faults. Such a one has the
// pinned one's name, a plus, and the configuration's: 6.1+debug. It is in the
// cache when builtBy has put it there; it is never fetched, nor tested on unless
// it is named.
const builtBy = "nvjournal/kernel/debug/build"

// built is the kernel of that configuration of a pinned one's source.
func (p Pin) built(configuration string) (Pin, error) {
	name := p.Name + "+" + configuration
	if configuration == "" || !plainName.MatchString(name) {
		return Pin{}, fmt.Errorf("%q is not a kernel's name, a plus and a configuration of %s, as %s+debug", name, builtBy, p.Name)
	}
	upstream, _, _ := strings.Cut(p.Version, "-")
	p.of, p.Name, p.Release = p.Name, name, upstream+"+"+configuration
	return p, nil
}

// builtDir is where a built kernel is, with its modules and what builds modules,
// laid out as what is unpacked of Debian's packages.
func (s Store) builtDir(pin Pin) string {
	return filepath.Join(s.Dir, "built", pin.Name, pin.Release)
}
