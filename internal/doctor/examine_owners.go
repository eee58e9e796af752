package doctor

import (
	"fmt"
	"path"
	"strings"

	"github.com/daybook-project/daybook/internal/container"
	"github.com/daybook-project/daybook/internal/safetext"
)

// examineOwners says who sets the weights of containers.
func examineOwners(f Facts) []Finding {
	var who []string
	containers := 0
	var systemd *Owner
	for _, o := range f.Owners {
		if o.Containers == 0 {
			continue
		}
		containers += o.Containers
		who = append(who, fmt.Sprintf("%s of %d (%s)", o.Name, o.Containers, o.Example))
		if o.Name == ownerSystemd {
			systemd = &o
		}
	}
	switch {
	case f.Cgroups.Version == "":
		return nil
	case containers == 0 && f.Systemd:
		return []Finding{ok("owners", "", "no container runs; systemd owns the units' cgroups and sets their weights")}
	case containers == 0:
		return []Finding{ok("owners", "", "no container runs; nobody sets weights")}
	}
	found := []Finding{ok("owners", "", "who sets the weights of %s: %s", plural(containers, "container", "containers"), strings.Join(who, ", "))}
	if systemd != nil {
		unit := path.Base(systemd.Example)
		found = append(found, note("systemd-weights", systemd.Example, "systemd owns the cgroups of "+plural(systemd.Containers, "container", "containers"),
			"control sets their weights over D-Bus; systemd undoes weights that are written to the files, so set your own there, too",
			fmt.Sprintf("systemctl set-property --runtime %s IOWeight=300", safetext.Word(unit))))
	}
	return found
}

// examineRuntimes lists them in a line.
func examineRuntimes(runtimes []Runtime) []Finding {
	var list []string
	var found []Finding
	for _, r := range runtimes {
		text := r.Name
		if r.Version != "" {
			text += " " + r.Version
		}
		var about []string
		if r.Driver != "" {
			about = append(about, "cgroup driver "+r.Driver)
		}
		if r.Containers > 0 {
			about = append(about, plural(r.Containers, "container", "containers"))
		}
		if len(about) > 0 {
			text += " (" + strings.Join(about, ", ") + ")"
		}
		list = append(list, text)
		if r.Name == container.Docker && r.Driver == ownerSystemd {
			found = append(found, note("cgroup-parent", r.Name, "with the systemd driver --cgroup-parent must be a slice",
				"dockerd refuses a path; the slice of the volume db1 is daybook-db1.slice", ""))
		}
	}
	if len(list) == 0 {
		return []Finding{ok("runtimes", "", "no container runtime is installed")}
	}
	return append([]Finding{ok("runtimes", "", "container runtimes: %s", strings.Join(list, ", "))}, found...)
}
