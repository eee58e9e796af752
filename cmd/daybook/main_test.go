package main

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/disksim"
)

// TestMain lets the test binary serve the disks that tests create.
func TestMain(m *testing.M) {
	disksim.ServeIfAsked()
	os.Exit(m.Run())
}
