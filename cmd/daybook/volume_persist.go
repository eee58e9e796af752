package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

// attachUnit attaches persistent volumes at boot.
const attachUnit = "daybook-attach.service"

// unitDirectories are those in which systemd finds enabled units
// (systemd.unit(5), "Unit File Load Path").
var unitDirectories = []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}

// isUnitEnabled reports whether another unit starts this one, on the host whose root directory
// that is. It reads links only, as "systemctl enable" makes them, so it works without systemd, too.
func isUnitEnabled(root, unit string) bool {
	for _, dir := range unitDirectories {
		for _, kind := range []string{"wants", "requires", "upholds"} {
			if links, _ := filepath.Glob(filepath.Join(root, dir, "*."+kind, unit)); len(links) > 0 {
				return true
			}
		}
	}
	return false
}

// warnOfNoUnit warns that nothing attaches a persistent volume at the next boot.
func warnOfNoUnit(cmd *cobra.Command, root, name string) {
	if !isUnitEnabled(root, attachUnit) {
		fmt.Fprintf(cmd.ErrOrStderr(), "daybook: the unit %s is not enabled, so nothing attaches volume %s at the next boot; install the unit and run \"systemctl enable %[1]s\", or run \"daybook volume attach --all-persistent\" at each boot\n", attachUnit, name)
	}
}
