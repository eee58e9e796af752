package journal_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/daybook-project/daybook/internal/journal"
	"github.com/daybook-project/daybook/internal/needs"
	"github.com/daybook-project/daybook/internal/systemdtest"
)

// findVariable makes the test binary print whether it finds the functions of the kernel.
const findVariable = "DAYBOOK_TEST_FIND_WRITE_ENDS"

func findWriteEndsIfAsked() {
	if os.Getenv(findVariable) == "" {
		return
	}
	_, known, err := journal.FindWriteEnds()
	fmt.Println("known:", known, err)
	os.Exit(0)
}

// The kernel shows the addresses of its functions to CAP_SYSLOG alone, unless
// kernel.kptr_restrict is 0 and kernel.perf_event_paranoid at most 1.
func TestTheUnitsSeeTheFunctionsThatEndAWrite(t *testing.T) {
	needs.Root(t)
	if _, known, err := journal.FindWriteEnds(); err != nil || !known {
		needs.That(t, false, fmt.Sprintf("the addresses of the kernel's functions: %v", err))
	}
	for _, name := range []string{"daybook-metrics", "daybook-control"} {
		unit := "../../deploy/systemd/" + name + ".service"
		command := systemdtest.Command(t, unit, os.Args[0])
		command.Env = append(os.Environ(), findVariable+"=1")
		if out, err := command.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "known: true <nil>" {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		for _, drops := range []string{"ProtectKernelLogs", "ProtectKernelTunables"} {
			if got := systemdtest.Values(t, unit, drops); len(got) > 0 {
				t.Errorf("%s has %s=%q, which hides the addresses", name, drops, got)
			}
		}
	}
}
