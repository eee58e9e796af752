// Package systemdtest runs programs in tests with only the capabilities that a
// unit of deploy/systemd gives them, and has a system bus with a systemd that hangs.
package systemdtest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

// Values are the values of a setting in a unit file, split at spaces, in order.
func Values(t testing.TB, unit, setting string) []string {
	t.Helper()
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), "="); key == setting {
			values = append(values, strings.Fields(value)...)
		}
	}
	return values
}

// Command is a program with the capabilities of the unit's CapabilityBoundingSet=,
// as far as this process has them.
func Command(t testing.TB, unit, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	setpriv := needs.Tool(t, "setpriv")
	names := Values(t, unit, "CapabilityBoundingSet")
	if len(names) == 0 {
		t.Fatalf("%s has no capabilities", unit)
	}
	ours := own(t)
	bounding := "-all"
	for _, name := range names {
		if name = strings.ToLower(strings.TrimPrefix(name, "CAP_")); slices.Contains(ours, name) {
			bounding += ",+" + name
		}
	}
	words := []string{"--no-new-privs", "--bounding-set=" + bounding, "--inh-caps=-all", program}
	return exec.Command(setpriv, append(words, arguments...)...)
}

// own are the capabilities of this process's bounding set.
func own(t testing.TB) []string {
	t.Helper()
	out, err := exec.Command("setpriv", "--dump").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if list, is := strings.CutPrefix(line, "Capability bounding set:"); is {
			return strings.Split(strings.TrimSpace(list), ",")
		}
	}
	t.Fatalf("setpriv --dump: %s", out)
	return nil
}
