package experiment

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/workload"
)

// TestMain lets the test binary serve the stages' disks and be their loads.
func TestMain(m *testing.M) {
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	os.Exit(m.Run())
}
