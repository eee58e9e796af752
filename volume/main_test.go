package volume

import (
	"os"
	"testing"
	"time"

	"github.com/daybook-project/daybook/internal/awaittest"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/victimtest"
	"github.com/daybook-project/daybook/volume/internal/freezeguard"
)

// TestMain lets the test binary guard frozen volumes, serve simulated disks, and
// be the process that is killed. Only a test that sets a shorter time depends on how long
// a freeze lasts, how soon a guardian answers, or how soon a killed process's tools end.
func TestMain(m *testing.M) {
	defaultMaxFreeze, freezeguard.Patience, freezeguard.Answers = 10*time.Minute, awaittest.Patience, awaittest.Patience
	repairPatience = 30 * time.Second
	GuardIfAsked()
	disksim.ServeIfAsked()
	victimtest.BeIfAsked(victimVariable, beVictim)
	victimtest.HearSignals()
	os.Exit(m.Run())
}
