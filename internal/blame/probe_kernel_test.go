package blame

import (
	"testing"

	"github.com/daybook-project/daybook/internal/needs"
)

func TestProgramsLoadIntoThisKernel(t *testing.T) {
	needs.Root(t)
	probe, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d programs; missing: %q", len(probe.links), probe.Missing())
	if _, err := probe.Collect(); err != nil {
		t.Error(err)
	}
	if err := probe.Close(); err != nil {
		t.Error(err)
	}
}
