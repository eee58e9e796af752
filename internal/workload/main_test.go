package workload

import (
	"os"
	"testing"
)

// TestMain lets the test binary be the loads.
func TestMain(m *testing.M) {
	RunIfAsked()
	os.Exit(m.Run())
}
