package doctor

import (
	"path"
	"slices"
	"strings"

	"github.com/daybook-project/daybook/internal/container"
)

// The owners that are no runtime.
const (
	ownerSystemd = "systemd"
	ownerDaybook = "daybook"
	ownerNobody  = "nobody"
)

// owners groups cgroups by who made them: systemd makes units, also for runtimes that
// ask it to. plain are cgroups without a container.
func owners(running []container.Identity, plain []string, systemd bool) []Owner {
	byName := map[string]*Owner{}
	add := func(name, at string, inContainer bool) {
		o := byName[name]
		if o == nil {
			o = &Owner{Name: name, Example: at}
			byName[name] = o
		}
		if inContainer {
			if o.Containers == 0 {
				o.Example = at
			}
			o.Containers++
		} else {
			o.Cgroups++
		}
	}
	for _, identity := range running {
		if systemd && isOfSystem(identity.Root) {
			add(ownerSystemd, identity.Root, true)
		} else {
			add(identity.Runtime, identity.Root, true)
		}
	}
	for _, at := range plain {
		switch {
		case systemd && isUnit(at):
			add(ownerSystemd, at, false)
		case strings.HasPrefix(at+"/", "/daybook/"):
			add(ownerDaybook, at, false)
		default:
			add(ownerNobody, at, false)
		}
	}
	var list []Owner
	for _, o := range byName {
		list = append(list, *o)
	}
	slices.SortFunc(list, func(a, b Owner) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// isUnit says whether the path ends in the name of a unit of systemd.
func isUnit(at string) bool {
	switch path.Ext(at) {
	case ".scope", ".service", ".slice", ".mount", ".swap", ".socket":
		return true
	}
	return false
}

// isOfSystem says whether the path can be that of a unit of the system's manager: these are
// in slices alone. Below another unit are those of users' managers, as of rootless Podman,
// and of machines, whose weights the system's manager does not know.
func isOfSystem(at string) bool {
	above := strings.Split(at, "/")
	return isUnit(at) && !slices.ContainsFunc(above[1:len(above)-1], func(name string) bool { return path.Ext(name) != ".slice" })
}

// driverOf is the cgroup driver of a runtime that made the container at the path.
func driverOf(at string) string {
	if isUnit(at) {
		return "systemd"
	}
	return "cgroupfs"
}
