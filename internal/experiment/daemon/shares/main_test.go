package shares

import (
	"os"
	"testing"

	"github.com/daybook-project/daybook/internal/disksim"
	"github.com/daybook-project/daybook/internal/experiment/scenario"
	"github.com/daybook-project/daybook/internal/workload"
)

func TestMain(m *testing.M) {
	disksim.ServeIfAsked()
	workload.RunIfAsked()
	scenario.RunIfAsked()
	os.Exit(m.Run())
}
