package journal_test

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/workload"
)

// TestMain lets the test binary be the loads.
func TestMain(m *testing.M) {
	workload.RunIfAsked()
	syncIfAsked()
	findWriteEndsIfAsked()
	os.Exit(m.Run())
}
