package main

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/adopt"
	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/victimtest"
	"github.com/daybook-project/daybook/internal/workload"
	"github.com/daybook-project/daybook/volume"
)

// commandVariable makes the test binary run as the command daybook, for tests
// that send it signals.
const commandVariable = "DAYBOOK_TEST_COMMAND"

// TestMain lets the test binary also run as the helper processes that tests
// start: the guard of frozen volumes, the servers of disks, and the loads.
func TestMain(m *testing.M) {
	volume.GuardIfAsked()
	adopt.GuardIfAsked()
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	if os.Getenv(commandVariable) != "" {
		main()
		os.Exit(0)
	}
	victimtest.HearSignals()
	os.Exit(m.Run())
}
