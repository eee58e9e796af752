package meter_test

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/workload"
)

// TestMain lets the test binary run as the loads.
func TestMain(m *testing.M) {
	workload.RunIfAsked()
	os.Exit(m.Run())
}
