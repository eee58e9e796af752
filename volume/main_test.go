package volume

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/victimtest"
)

// TestMain lets the test binary guard frozen volumes, serve simulated disks, and
// be the process that is killed.
func TestMain(m *testing.M) {
	GuardIfAsked()
	disksim.ServeIfAsked()
	victimtest.BeIfAsked(victimVariable, beVictim)
	os.Exit(m.Run())
}
