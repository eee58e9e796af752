package volume

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/disksim"
)

// TestMain lets the test binary serve simulated disks, and be the process that
// is killed.
func TestMain(m *testing.M) {
	disksim.ServeIfAsked()
	beVictimIfAsked()
	os.Exit(m.Run())
}
